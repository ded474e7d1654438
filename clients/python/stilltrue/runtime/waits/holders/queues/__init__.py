"""Queues as pools: who has taken an item out, and puts it back."""
