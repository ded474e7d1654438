"""The state of each snapshot between micro-batches: its records until it is done, and that it is done for a while after.

Rules:

1. A key is a snapshot. Its records are kept until :func:`~detector.assembly.step.step` gives the result; then they go.
2. ``give_up_seconds`` of event time after its last record nothing more is waited for: with a header it is judged from what is
   there, without one nobody asks for it. Event time is that of Kafka's records: an assembly that stood still gives nothing up.
3. Kept records are read once there are as many reports as the header names: reading them costs what the fleet's size is.
4. That a snapshot is done is remembered for as long again: records that come later, or once more, change nothing.
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
"""Of this worker, which lives for as long as Spark uses it again."""
COLLECTED_AFTER = (10_000, 20, 1000)
"""Python's cyclic collector: reports hold no cycles, and each full collection walks over all of a fleet's."""
SAID = "key string, value binary, what string, number long"
"""What the processor gives: records for the coordinator, where ``value`` is one; and how often ``what`` happened."""
BEGUN, ASKED, JUDGED, GIVEN_UP, UNASKED, LATE = "begun", "asked", "judged", "given_up", "unasked", "late"
"""``what``: as :class:`~detector.spark.assembly.tally.Tally` counts it."""


class Assembly(StatefulProcessor):
    """Assembles and judges one snapshot after the other."""

    def __init__(self, give_up_seconds: float) -> None:
        """``give_up_seconds``: rule 2."""
        self._give_up_milliseconds = int(1000 * give_up_seconds)

    def init(self, handle: StatefulProcessorHandle) -> None:
        """As Spark asks."""
        gc.set_threshold(*COLLECTED_AFTER)
        self._handle = handle
        self._records = handle.getListState("records", "value binary")
        self._said = handle.getValueState("said", "asked int, done boolean, timer long")
        self._counts = handle.getValueState("counts", "came int, wanted int")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: ARG002, N802, N803
        """Records have come."""
        asked, done, timer = self._known()
        came = [(bytes(row.value), row.at) for row in rows]
        if not came:
            return
        if done:
            yield _happened(key[0], LATE, len(came))
            return
        if not timer:
            yield _happened(key[0], BEGUN)
        fresh = [value for value, _ in came]
        found = None
        if self._enough(fresh, known=timer > 0):
            found = step([*self._kept(), *fresh], asked=asked, recent=_RECENT)
        timer = self._postponed(timer, max(at for _, at in came))
        if found is None or found.result is None:
            self._records.appendList([(value,) for value in fresh])
        yield from self._told(key[0], found, asked, timer)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: ARG002, N802, N803
        """Nothing more has come for long."""
        asked, done, _ = self._known()
        found = None if done else step(list(self._kept()), asked=asked, late=True, recent=_RECENT)
        if found is None:
            if not done:
                yield _happened(key[0], UNASKED)
            self._records.clear()
            self._said.clear()
            self._counts.clear()
            return
        timer = expiredTimerInfo.getExpiryTimeInMs() + self._give_up_milliseconds
        self._handle.registerTimer(timer)
        yield _happened(key[0], GIVEN_UP)
        yield from self._told(key[0], found, asked, timer)

    def _enough(self, fresh: Sequence[bytes], *, known: bool) -> bool:
        """Whether there may be as many reports as the header names: until then the kept ones are not looked at."""
        counts = self._counts.get()
        came, wanted = (0, -1) if counts is None else (counts[0], counts[1])
        looked_at = fresh if counts is not None or not known else [*self._kept(), *fresh]
        came += sum(record[:1] == REPORT for record in looked_at)
        header = next((record for record in looked_at if record[:1] == HEADER), None)
        if header is not None and wanted < 0:
            wanted = len(header_of(header).reported)
        self._counts.update((came, wanted))
        return 0 <= wanted <= came

    def _told(self, key: str, found: Step | None, asked: int, timer: int) -> Iterator[Row]:
        done = found is not None and found.result is not None
        self._said.update((asked if found is None else found.asked, done, timer))
        if done:
            self._records.clear()
            self._counts.clear()
        if found is not None:
            yield Row(key=key, value=found.record, what=JUDGED if done else ASKED, number=1)

    def _postponed(self, timer: int, newest: datetime) -> int:
        due = int(newest.timestamp() * 1000) + self._give_up_milliseconds
        if due <= timer:
            return timer
        if timer:
            self._handle.deleteTimer(timer)
        self._handle.registerTimer(due)
        return due

    def _known(self) -> tuple[int, bool, int]:
        found = self._said.get()
        return (0, False, 0) if found is None else (found[0], found[1], found[2])

    def _kept(self) -> Iterator[bytes]:
        return (bytes(each[0]) for each in self._records.get())


def _happened(key: str, what: str, number: int = 1) -> Row:
    return Row(key=key, value=None, what=what, number=number)
