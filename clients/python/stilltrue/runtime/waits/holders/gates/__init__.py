"""Gates: locks that the application builds from a condition and a counter, flag, owner or set of keys."""
