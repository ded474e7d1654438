"""From local states to waits: where each call is, what holds it up, who may cancel it."""
