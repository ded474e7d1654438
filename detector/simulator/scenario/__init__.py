"""The scenario language: stories as text, played and checked."""
