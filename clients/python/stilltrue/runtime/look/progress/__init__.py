"""Who goes on by itself, who once somebody else does, and who never."""
