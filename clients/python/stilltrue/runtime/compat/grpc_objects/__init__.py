"""Reads private parts of gRPC: calls, contexts, servers and channels."""
