"""Calls and the program as the sidecar sees them."""
