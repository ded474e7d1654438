"""Assembles snapshots outside the detector's own process: the records that travel, and their evaluation."""
