"""The agent in a live process: the locked recorder, parties, observation at the cut, and the connection to the detector."""
