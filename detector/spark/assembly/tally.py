"""The assembly's totals of snapshots begun, evaluated and given up, in a file next to its state; each batch adds to them.

A batch that runs again after an interruption counts once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from detector.ops.files.atomic_file import write_atomically

FILE = "tally.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Totals since the beginning, up to ``batch``.

    ``begun``: snapshots with any record; ``judged``: snapshots with a result, ``given_up`` of them without all their reports or
    looks; ``unasked``: snapshots without a header, which no coordinator waits for. ``asked``: rounds of looks. ``late``:
    records that arrived after their snapshot was finished.
    """

    batch: int = -1
    begun: int = 0
    judged: int = 0
    given_up: int = 0
    unasked: int = 0
    asked: int = 0
    late: int = 0
    verdicts: int = 0

    def waiting(self) -> int:
        """Return the number of snapshots that wait for records."""
        return self.begun - self.judged - self.unasked


@dataclass(frozen=True, slots=True)
class TallyFile:
    """The file with the tally."""

    folder: Path

    def last(self) -> Tally:
        """Return the tally as of the newest batch."""
        return self._both()[0]

    def add(self, batch: int, counts: Mapping[str, int]) -> None:
        """Add a batch's counts; if the batch runs again, they replace its earlier counts."""
        now, before = self._both()
        base = before if now.batch >= batch else now
        after = replace(base, batch=batch, **{name: getattr(base, name) + count for name, count in counts.items()})
        content = json.dumps({"now": asdict(after), "before": asdict(base)}).encode()
        write_atomically(self.folder / FILE, memoryview(content))

    def _both(self) -> tuple[Tally, Tally]:
        try:
            raw = json.loads((self.folder / FILE).read_text())
        except FileNotFoundError:
            return Tally(), Tally()
        return Tally(**raw["now"]), Tally(**raw["before"])
