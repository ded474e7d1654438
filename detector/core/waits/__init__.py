"""From local states to waits: where each call is, what holds it up, which parties may cancel it."""
