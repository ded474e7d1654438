"""Seeded worlds that run the real recorder, initiator, assembler and predicates, checked by an oracle that sees everything."""
