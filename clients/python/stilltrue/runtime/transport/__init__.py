"""The process's connections: where an outgoing call can be, and which blocked parties hold up incoming calls."""
