"""Real gRPC processes that deadlock: scenes for ``stilltrue demo``, the live tests and the soak test."""
