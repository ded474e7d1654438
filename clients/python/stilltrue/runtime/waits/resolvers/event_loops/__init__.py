"""Resolvers of waits in which an event loop, or a library of coroutines, takes part."""
