"""Real gRPC processes that really deadlock: scenes for ``stilltrue demo``, the live tests and the soak test."""
