"""What the application declares: resources and their holders, waits, atomic steps, its word on activity."""
