"""The checks of worlds: the oracle, the promises, theorem 1 and stability."""
