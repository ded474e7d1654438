"""Transcripts: the main algorithm (recorder, initiator, assembler, verdict) played step by step, with what it answered."""
