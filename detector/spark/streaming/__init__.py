"""Verdicts on snapshots as they come: Structured Streaming round the analysis kernels."""
