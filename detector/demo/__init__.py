"""Real gRPC processes that get into real trouble: scenes for `stilltrue demo`, for the live tests and for the soak."""
