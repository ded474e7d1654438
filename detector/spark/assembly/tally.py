"""How many snapshots the assembly has begun, judged and timed out: totals in a file beside its state, added to by each batch.

A batch that is made again, after it was cut short, counts once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from detector.ops.atomic_file import write_atomically

FILE = "tally.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Since the beginning, up to ``batch``.

    ``begun``: snapshots of which a record has come; ``judged``: with a result, ``given_up`` of them without all their reports
    or looks; ``unasked``: of which no header came, so that nobody waits for them. ``asked``: rounds of looks. ``late``:
    records that came when their snapshot was done.
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
        """Snapshots that wait for records."""
        return self.begun - self.judged - self.unasked


@dataclass(frozen=True, slots=True)
class TallyFile:
    """The tally in a folder."""

    folder: Path

    def last(self) -> Tally:
        """As of the newest batch."""
        return self._both()[0]

    def add(self, batch: int, counts: Mapping[str, int]) -> None:
        """A batch has been; of one that has been before, these counts replace the earlier ones."""
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
