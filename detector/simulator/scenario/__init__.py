"""The scenario language: runs and checks scenarios written as text."""
