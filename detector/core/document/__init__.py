"""Snapshot documents (docs/design.md section 8): the JSON form of a snapshot."""
