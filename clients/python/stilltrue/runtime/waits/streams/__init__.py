"""Waits of both ends of gRPC's streams."""
