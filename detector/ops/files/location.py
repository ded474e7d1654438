"""Locations of archives and results: directories and URIs."""

from __future__ import annotations

from pathlib import Path


def absolute(location: str) -> str:
    """Return a URI unchanged, and a directory as an absolute path, since Spark's workers have other working directories."""
    return location if "://" in location or not location else str(Path(location).absolute())
