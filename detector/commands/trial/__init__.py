"""Commands to try it out: worlds, scenarios, the demo."""
