"""Mutants: the rules of the algorithm broken on purpose, one at a time, to show that the worlds would notice."""
