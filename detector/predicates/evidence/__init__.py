"""What a verdict shows: its parties, witness, explanation and suggested victims."""
