"""The metrics of a running assembly, for Prometheus: its tally, how far it is behind Kafka, and how long a batch takes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from detector.assembly.cluster import RecordsUnavailableError
from detector.spark.assembly.tally import TallyFile

Unread = Callable[[Mapping[str, Any]], int]
"""How many records there are behind the offset of a source. Raises :class:`RecordsUnavailableError`."""


class AssemblyMetrics(Collector):
    """Read from the tally, Spark's last progress and Kafka at each scrape."""

    def __init__(self, tally: TallyFile, progress: Callable[[], Mapping[str, Any] | None], unread: Unread) -> None:
        """``progress``: Spark's newest, as its JSON."""
        self._tally = tally
        self._progress = progress
        self._unread = unread
        self._kafka_errors = 0

    def collect(self) -> Iterator[Metric]:
        """As prometheus_client asks."""
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
            "snapshots_unasked": ("Snapshots of which no header came: nobody waits for them.", tally.unasked),
            "looks_asked": ("Verification rounds that were asked for.", tally.asked),
            "records_late": ("Records that came when their snapshot was done: they change nothing.", tally.late),
            "verdicts": ("Verdicts written.", tally.verdicts),
            "kafka_errors": (
                "How often Kafka, or the store, did not say how far the records go, when asked for these metrics.",
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
        yield _gauge("lag_records", "Records that are kept and not read yet.", unread)


def read_up_to(progress: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The source's offset, from Spark's progress; None before anything was read."""
    for source in progress.get("sources", ()):
        offset = source.get("endOffset")
        found = json.loads(offset) if isinstance(offset, str) else offset
        if isinstance(found, dict) and found:
            return found
    return None


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"stilltrue_assembly_{name}", text, value=value)
