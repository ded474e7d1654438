"""Which party holds a lock or a share, by where it stands: read from frames and their code."""
