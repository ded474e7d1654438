"""Dataflow graphs: stages, edges, vertices, keys, and restart regions."""
