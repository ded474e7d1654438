"""Members, expected members, and the coverage of answers."""
