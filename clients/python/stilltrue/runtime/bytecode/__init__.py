"""Bytecode as CPython 3.11 and later write it, also on 3.10; and the qualified names of code objects."""
