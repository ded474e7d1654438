"""The audit log: who aborted which calls, or had which process forgotten, and when.

JSON lines in a rotated file in the data directory.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from detector.core.times import write_time
from detector.ops.printable_text import printable_json

NAME = "audit.jsonl"
BYTES_MAX = 2**20
FILES_KEPT = 5
"""Rotated files kept besides the current one; ``audit.jsonl.1`` is the newest."""


class Audit:
    """Writes entries, one per line."""

    def __init__(self, directory: Path, name: str = NAME) -> None:
        """``directory``: the detector's data directory; ``name``: the file's name."""
        self._path = directory / name

    def write(self, at: float, what: str, who: str, **values: Any) -> None:
        """Append an entry. Raises ``OSError``."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if self._path.exists() and self._path.stat().st_size >= BYTES_MAX:
            self._rotate()
        entry = {"at": write_time(at), "what": what, "who": who, **values}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(printable_json(json.dumps(entry, ensure_ascii=True)) + "\n")

    def _rotate(self) -> None:
        name = self._path.name
        for number in range(FILES_KEPT, 0, -1):
            older = self._path if number == 1 else self._path.with_name(f"{name}.{number - 1}")
            if older.exists():
                older.replace(self._path.with_name(f"{name}.{number}"))
