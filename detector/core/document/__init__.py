"""Snapshot documents (docs/design.md section 8): JSON in, a snapshot out, and back."""
