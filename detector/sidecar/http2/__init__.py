"""Relays HTTP/2 from one connection to another."""
