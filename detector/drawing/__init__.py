"""Drawings of wait-for graphs: DOT, SVG, GraphML and JSON, in pure Python."""
