"""The shell for threads: channels, call objects, servers, pools and locks. Twin of :mod:`stilltrue.aio`."""
