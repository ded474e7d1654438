"""Assembles and evaluates the snapshots of collected fleets with Structured Streaming."""
