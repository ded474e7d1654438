"""The evidence of verdicts: parties, witness, explanation and suggested victims."""
