"""Who has a lock or a share, by where he stands: read from frames and their code."""
