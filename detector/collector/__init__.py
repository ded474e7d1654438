"""The collector: ends the streams of many agents, and keeps nothing of them."""
