"""The relay: HTTP/2 frames and headers passed from one connection to another."""
