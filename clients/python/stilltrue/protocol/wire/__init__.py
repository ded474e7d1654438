"""Converts reports, verdicts, looks and their parts to protobuf and back; no other module does.

``X_to_wire`` cannot fail for values that the agent made. ``X_from_wire`` raises :class:`MalformedError`, which names the field,
for a message that breaks the contract of the protos.
"""
