"""The recorder in a live process: its lock and clock, parties, waits seen at the cut, the connection to the detector."""
