"""The HTTP libraries that make requests."""
