"""Prometheus metrics of a running stream, read from its state at each scrape."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from detector.ops.exposition import exposed
from detector.spark.streaming.progress import Folder, Progress

READ_TRIES_MAX = 3


class StreamMetrics(Collector):
    """Collects the metrics of the newest committed batch."""

    def __init__(self, folder: Folder, clock: Callable[[], float] = time.time) -> None:
        """``clock`` returns seconds since the epoch."""
        self._folder = folder
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        progress = self._progress()
        gauges = {
            "snapshots_waiting": ("Snapshots without a verdict that wait for reports.", progress.waiting()),
            "snapshots_given_up": ("Snapshots with a verdict that were finished without some reports.", progress.given_up()),
            "files_torn": ("Files of the archive that exist but could not be read.", len(progress.torn)),
            "batches": ("The number of the newest committed micro-batch; -1 before the first.", progress.batch),
        }
        for name, (text, value) in gauges.items():
            yield GaugeMetricFamily(f"stilltrue_stream_{name}", text, value=value)
        marks = progress.watermarks().values()
        if marks:  # of the archive that is furthest behind
            text = "Age of the newest snapshot whose reports and header the stream has seen."
            yield GaugeMetricFamily(
                "stilltrue_stream_lag_seconds", text, value=max(0.0, self._clock() - min(begun for _, begun in marks))
            )
        counters = {
            "verdicts": ("Verdicts written, corrected ones included.", progress.verdicts),
            "snapshots_mixed": (
                "Snapshots left out because two detectors without an id used the same number.",
                progress.mixed.count(),
            ),
            "verdicts_corrected": ("Verdicts that late reports corrected.", progress.corrected),
            "reports_late": ("Reports that arrived too late to count.", progress.late),
        }
        for name, (text, value) in counters.items():
            yield CounterMetricFamily(f"stilltrue_stream_{name}", text, value=value)

    def _progress(self) -> Progress:
        """Read the newest state; retry if a commit removes it in the meantime."""
        for _ in range(READ_TRIES_MAX):
            try:
                return self._folder.last()
            except FileNotFoundError:
                continue
        return self._folder.last()


@contextmanager
def served(folder: Folder, host: str, port: int) -> Iterator[int]:
    """Serve ``/metrics`` while the block runs; yield the port. Raises OSError if it cannot listen there."""
    with exposed(StreamMetrics(folder), host, port) as listening:
        yield listening
