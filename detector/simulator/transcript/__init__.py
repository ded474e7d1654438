"""Transcripts: the main algorithm (recorder, initiator, assembler, verdict) step by step, with its answers."""
