"""The verification round: suspicions, the second look that amends reports, its evidence and assumptions."""
