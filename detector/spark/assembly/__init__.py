"""Snapshots of collected fleets, assembled and judged by Structured Streaming."""
