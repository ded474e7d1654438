"""The one door between the nouns and protobuf: reports, verdicts, looks and their parts.

``X_to_wire`` cannot fail for nouns the agent made; ``X_from_wire`` raises :class:`MalformedError` for a message that breaks
the contract of the protos, and its text names the field.
"""
