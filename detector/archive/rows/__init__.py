"""Snapshots as rows and columns of the archive, and back: the schema, encoders and decoders."""
