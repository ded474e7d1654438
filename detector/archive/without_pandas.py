"""Keeps pyarrow from importing pandas, which a detector has no use for: a second of processor time and 60 MB.

pyarrow looks for pandas once, at the first array that it makes of a list, and imports it if it is installed. It is told here
that it is not. Where it is imported already (by a predicate's package, perhaps), both keep working together.
"""

from __future__ import annotations

import sys

import pyarrow as pa


class _NoPandas:
    """Finds no pandas."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        """As ``importlib.abc.MetaPathFinder``: raise for pandas, and leave all else to the other finders."""
        if name == "pandas":
            raise ModuleNotFoundError(name, name=name)


def spare_pandas() -> None:
    """Let pyarrow look for pandas now, and not find it."""
    if "pandas" in sys.modules:
        return
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(finder)
