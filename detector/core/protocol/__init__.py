"""The detector's half of the snapshot protocol: begins snapshots and assembles their reports."""
