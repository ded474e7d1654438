"""Commands that ask a running detector."""
