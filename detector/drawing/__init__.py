"""Pictures of wait graphs: DOT, SVG, GraphML and JSON, made without any program but Python."""
