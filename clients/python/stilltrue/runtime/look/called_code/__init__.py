"""The code that other code may run: what it calls by name, what it calls without naming it, and whether that ends things."""
