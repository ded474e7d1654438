"""Starts a local session's Python workers with PySpark as it is installed here, which has bytecode.

Spark puts the zip files of its own folder first on a worker's path, and Python keeps no bytecode of modules in a zip file: each
worker would compile all of PySpark again, which takes longer than most tasks.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path


def installed_first(paths: list[str], package: Path | None) -> list[str]:
    """Move the zip files that belong to the installed ``package`` of PySpark to the end of ``paths``."""
    own = "" if package is None else str(package / "python" / "lib") + "/"
    zips = [path for path in paths if own and path.startswith(own) and path.endswith(".zip")]
    return [path for path in paths if path not in zips] + zips


def _installed() -> Path | None:
    """Return the folder of the PySpark that is installed here, if any, without the zip files."""
    before = sys.path[:]
    sys.path[:] = [path for path in before if not path.endswith(".zip")]
    try:
        found = find_spec("pyspark")
    finally:
        sys.path[:] = before
    return None if found is None or found.origin is None else Path(found.origin).parent


if __name__ == "__main__":
    sys.path[:] = installed_first(sys.path, _installed())
    import_module("pyspark.daemon").manager()
