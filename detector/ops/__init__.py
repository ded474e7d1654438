"""What long-running processes share: logs, a clock, addresses, HTTP, files written in one step."""
