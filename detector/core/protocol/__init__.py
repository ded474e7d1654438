"""The detector's half of the snapshot protocol: when a snapshot begins, and how reports become one."""
