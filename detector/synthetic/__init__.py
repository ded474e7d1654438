"""Generates archives of synthetic fleets with planted deadlocks."""
