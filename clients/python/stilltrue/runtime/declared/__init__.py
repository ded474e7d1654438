"""The application's declarations: resources and their holders, waits, atomic steps, and idleness."""
