"""Checkpoints of dataflow graphs by asynchronous barriers, and the files that they are restored from."""
