"""The live half of the agent: the recorder's lock and clock, parties, observation at the cut, and the connection."""
