"""Resolves local states to waits: where each call is, what holds it up, and which parties may cancel it."""
