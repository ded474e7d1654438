"""Finds the holders of locks and shares by the positions of threads and tasks, read from their frames and bytecode."""
