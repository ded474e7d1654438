"""The service: the pure core in a live process, with streams, a clock, an archive, metrics and pages."""
