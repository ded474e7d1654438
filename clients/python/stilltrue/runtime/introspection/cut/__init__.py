"""What the agent observes at a cut: what tasks await, when their waits end, and which parties may cancel them."""
