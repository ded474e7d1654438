"""Mutants: break one rule of the algorithm at a time, to show that the worlds would notice."""
