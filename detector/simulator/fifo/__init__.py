"""Worlds of processes joined by FIFO channels."""
