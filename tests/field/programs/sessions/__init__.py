"""How programs bound their sessions, each in a module that only those near misses import that do so."""
