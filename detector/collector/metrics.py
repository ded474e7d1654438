"""A collector's metrics: its connections, and the outcomes of the reports that it received."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


@dataclass(slots=True)
class Counts:
    """Counts since the start. Only the event loop writes them."""

    reports: int = 0
    report_bytes: int = 0
    refused: int = 0
    unkept: int = 0


class CollectorMetrics(Collector):
    """Collects the metrics on each scrape, from the counts and the relay."""

    def __init__(self, counts: Counts, streams: Callable[[], int], connected: Callable[[], bool]) -> None:
        """``streams`` returns the number of connected agents; ``connected`` returns whether the coordinator is connected."""
        self._counts = counts
        self._streams = streams
        self._connected = connected

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        gauges = {
            "streams": ("Connected agents.", self._streams()),
            "coordinator_connected": (
                "Whether the coordinator is connected. Without it no agent is served.",
                self._connected(),
            ),
        }
        for name, (text, value) in gauges.items():
            yield GaugeMetricFamily(f"stilltrue_collector_{name}", text, value=float(value))
        counts = self._counts
        counters = {
            "reports": ("Reports written, whose digests went to the coordinator.", counts.reports),
            "report_bytes": ("The size of these reports, as received from agents.", counts.report_bytes),
            "reports_refused": ("Refused reports; each one ended its agent's stream.", counts.refused),
            "reports_unkept": ("Reports that could not be written; the snapshot lacks these members.", counts.unkept),
        }
        for name, (text, value) in counters.items():
            yield CounterMetricFamily(f"stilltrue_collector_{name}", text, value=value)
