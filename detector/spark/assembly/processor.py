"""The state of each snapshot between micro-batches: its records until it is finished, and then a mark for a while.

Rules:

1. A key is a snapshot. Its records are stored until :func:`~detector.assembly.step.step` returns a result, then deleted.
2. ``give_up_seconds`` of event time after its last record, a snapshot waits no longer: with a header it is evaluated from the
   records at hand; without one no coordinator asks for it. Event time is that of Kafka's records, so an assembly that was
   stopped gives up nothing.
3. Stored records are read only once there are as many reports as the header names, since reading them takes time linear in the
   fleet's size.
4. A finished snapshot is remembered for ``give_up_seconds`` more; its late or duplicate records change nothing.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from detector.assembly.records import HEADER, REPORT, header_of
from detector.assembly.step import Step, step
from detector.spark.assembly.recent import RecentReports

_RECENT = RecentReports()
"""The cache of this worker, which Spark reuses."""
GC_THRESHOLDS = (10_000, 20, 1000)
"""Python's garbage collector runs rarely: reports have no cycles, and a full collection traverses all of a fleet's reports."""
OUTPUT = "key string, value binary, what string, number long"
"""The processor's output: ``what`` happened ``number`` times, and if ``value`` is not null, a record for the coordinator."""
BEGUN, ASKED, JUDGED, GIVEN_UP, UNASKED, LATE = "begun", "asked", "judged", "given_up", "unasked", "late"
"""The values of ``what``, as :class:`~detector.spark.assembly.tally.Tally` counts them."""


class Assembly(StatefulProcessor):
    """Assembles and evaluates snapshots."""

    def __init__(self, give_up_seconds: float) -> None:
        """``give_up_seconds``: see rule 2."""
        self._give_up_milliseconds = int(1000 * give_up_seconds)

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state of a key."""
        gc.set_threshold(*GC_THRESHOLDS)
        self._handle = handle
        self._records = handle.getListState("records", "value binary")
        self._status = handle.getValueState("said", "asked int, done boolean, timer long")
        self._counts = handle.getValueState("counts", "came int, wanted int")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: ARG002, N802, N803
        """Records have arrived."""
        asked, done, timer = self._load_status()
        received = [(bytes(row.value), row.at) for row in rows]
        if not received:
            return
        if done:
            yield _event(key[0], LATE, len(received))
            return
        if not timer:
            yield _event(key[0], BEGUN)
        fresh = [value for value, _ in received]
        found = None
        if self._may_be_complete(fresh, known=timer > 0):
            found = step([*self._stored(), *fresh], asked=asked, recent=_RECENT)
        timer = self._postpone(timer, max(at for _, at in received))
        if found is None or found.result is None:
            self._records.appendList([(value,) for value in fresh])
        yield from self._save(key[0], found, asked, timer)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: ARG002, N802, N803
        """No record has arrived for ``give_up_seconds``."""
        asked, done, _ = self._load_status()
        found = None if done else step(list(self._stored()), asked=asked, late=True, recent=_RECENT)
        if found is None:
            if not done:
                yield _event(key[0], UNASKED)
            self._records.clear()
            self._status.clear()
            self._counts.clear()
            return
        timer = expiredTimerInfo.getExpiryTimeInMs() + self._give_up_milliseconds
        self._handle.registerTimer(timer)
        yield _event(key[0], GIVEN_UP)
        yield from self._save(key[0], found, asked, timer)

    def _may_be_complete(self, fresh: Sequence[bytes], *, known: bool) -> bool:
        """Whether there may be as many reports as the header names; until then the stored ones are not read."""
        counts = self._counts.get()
        received, expected = (0, -1) if counts is None else (counts[0], counts[1])
        uncounted = fresh if counts is not None or not known else [*self._stored(), *fresh]
        received += sum(record[:1] == REPORT for record in uncounted)
        header = next((record for record in uncounted if record[:1] == HEADER), None)
        if header is not None and expected < 0:
            expected = len(header_of(header).reported)
        self._counts.update((received, expected))
        return 0 <= expected <= received

    def _save(self, key: str, found: Step | None, asked: int, timer: int) -> Iterator[Row]:
        """Store the status after a step; yield the step's record."""
        done = found is not None and found.result is not None
        self._status.update((asked if found is None else found.asked, done, timer))
        if done:
            self._records.clear()
            self._counts.clear()
        if found is not None:
            yield Row(key=key, value=found.record, what=JUDGED if done else ASKED, number=1)

    def _postpone(self, timer: int, newest: datetime) -> int:
        due = int(newest.timestamp() * 1000) + self._give_up_milliseconds
        if due <= timer:
            return timer
        if timer:
            self._handle.deleteTimer(timer)
        self._handle.registerTimer(due)
        return due

    def _load_status(self) -> tuple[int, bool, int]:
        found = self._status.get()
        return (0, False, 0) if found is None else (found[0], found[1], found[2])

    def _stored(self) -> Iterator[bytes]:
        return (bytes(each[0]) for each in self._records.get())


def _event(key: str, what: str, number: int = 1) -> Row:
    return Row(key=key, value=None, what=what, number=number)
