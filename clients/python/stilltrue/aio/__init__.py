"""The shell for event loops: channels, call objects, servers, tasks and locks. Twin of :mod:`stilltrue.sync`."""
