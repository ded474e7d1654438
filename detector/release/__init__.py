"""Builds the release: the wheels, with the installed package name, and everything else in ``dist/``."""
