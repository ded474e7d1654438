"""Dataflow graphs: stages, edges, vertices, keys, and which of them restart together."""
