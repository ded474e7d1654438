"""Who takes part: members, the expected ones, and what an answer covers."""
