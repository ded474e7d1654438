"""The verification round: suspicions, the amendments of a second look, its evidence and assumptions."""
