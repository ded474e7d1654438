"""Waits of threads and tasks for what the worker processes of a pool run."""
