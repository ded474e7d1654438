"""The collector: terminates the streams of many agents, and is stateless."""
