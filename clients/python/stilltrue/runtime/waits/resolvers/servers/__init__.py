"""Resolvers of waits for servers and channels: their end, their callbacks."""
