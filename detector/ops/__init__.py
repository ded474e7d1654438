"""Infrastructure of long-running processes: logs, a clock, addresses, HTTP, atomic files."""
