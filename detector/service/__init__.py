"""The service: runs the pure core in a live process, with streams, a clock, storage, metrics and a web UI."""
