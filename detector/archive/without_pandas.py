"""Keeps pyarrow from importing pandas, which the detector does not use: it costs a second of processor time and 60 MB.

pyarrow tries to import pandas once, when it first converts a list to an array; here that import fails. If pandas is already
imported (perhaps by a predicate's package), pyarrow uses it as usual.
"""

from __future__ import annotations

import sys

import pyarrow as pa


class _NoPandas:
    """A finder that hides pandas."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        """Raise for pandas; leave other modules to the next finder (see ``importlib.abc.MetaPathFinder``)."""
        if name == "pandas":
            raise ModuleNotFoundError(name, name=name)


def hide_pandas() -> None:
    """Make pyarrow look for pandas now, and not find it."""
    if "pandas" in sys.modules:
        return
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(finder)
