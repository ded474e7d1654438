"""Many archived snapshots at once: assembly, verdicts, near misses, counters and tables, as pure Arrow kernels."""
