"""The scenario language: scenarios as text, run and checked."""
