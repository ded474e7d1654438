"""Prometheus metrics of a running assembly: its tally, its lag, and the duration of batches."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from detector.assembly.cluster import RecordsUnavailableError
from detector.spark.assembly.tally import TallyFile

Unread = Callable[[Mapping[str, Any]], int]
"""Returns the number of records after a source's offset. Raises :class:`RecordsUnavailableError`."""


class AssemblyMetrics(Collector):
    """Collects the metrics on each scrape, from the tally, Spark's last progress and Kafka."""

    def __init__(self, tally: TallyFile, progress: Callable[[], Mapping[str, Any] | None], unread: Unread) -> None:
        """``progress`` returns Spark's newest progress as JSON."""
        self._tally = tally
        self._progress = progress
        self._unread = unread
        self._kafka_errors = 0

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        tally, progress = self._tally.last(), self._progress()
        yield _gauge("snapshots_waiting", "Snapshots without a result that wait for records.", tally.waiting())
        yield _gauge("batches", "The number of the newest micro-batch with records; -1 before the first.", tally.batch)
        if progress is not None:
            seconds = progress.get("durationMs", {}).get("triggerExecution", 0) / 1000
            yield _gauge("batch_seconds", "How long the newest micro-batch took.", seconds)
            yield from self._lag(progress)
        counters = {
            "snapshots_judged": ("Snapshots with a result.", tally.judged),
            "snapshots_given_up": ("Snapshots judged without all their reports or looks.", tally.given_up),
            "snapshots_unasked": ("Snapshots without a header, which no coordinator waits for.", tally.unasked),
            "looks_asked": ("Verification rounds requested.", tally.asked),
            "records_late": ("Records that arrived after their snapshot was finished, and were ignored.", tally.late),
            "verdicts": ("Verdicts written.", tally.verdicts),
            "kafka_errors": (
                "Scrapes of these metrics at which Kafka, or the store, did not return the end of the records.",
                self._kafka_errors,
            ),
        }
        for name, (text, value) in counters.items():
            yield CounterMetricFamily(f"stilltrue_assembly_{name}", text, value=value)

    def _lag(self, progress: Mapping[str, Any]) -> Iterator[Metric]:
        read = read_up_to(progress)
        if read is None:
            return
        try:
            unread = self._unread(read)
        except RecordsUnavailableError:
            self._kafka_errors += 1
            return
        yield _gauge("lag_records", "Stored records that have not been read yet.", unread)


def read_up_to(progress: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the source's offset from Spark's progress; None before anything was read."""
    for source in progress.get("sources", ()):
        offset = source.get("endOffset")
        found = json.loads(offset) if isinstance(offset, str) else offset
        if isinstance(found, dict) and found:
            return found
    return None


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"stilltrue_assembly_{name}", text, value=value)
