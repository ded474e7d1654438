"""Cures: ends a deadlock when an operator asks for it, by having its victims' calls aborted."""
