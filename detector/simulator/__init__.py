"""Seeded worlds that drive the real recorder, initiator, assembler and predicates, and an oracle that sees all of it."""
