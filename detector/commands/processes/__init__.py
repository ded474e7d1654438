"""Commands that run something until they are ended, or look after its state."""
