"""Evaluates snapshots as they arrive: Structured Streaming around the analysis kernels."""
