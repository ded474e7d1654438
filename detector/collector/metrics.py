"""A collector's metrics: what it holds, and what became of the reports that came to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


@dataclass(slots=True)
class Counts:
    """What has happened since the start. Written on the event loop alone."""

    reports: int = 0
    report_bytes: int = 0
    refused: int = 0
    unkept: int = 0


class CollectorMetrics(Collector):
    """Read from the counts and the relay at each scrape."""

    def __init__(self, counts: Counts, streams: Callable[[], int], connected: Callable[[], bool]) -> None:
        """``streams``: how many agents are connected; ``connected``: whether the coordinator is."""
        self._counts = counts
        self._streams = streams
        self._connected = connected

    def collect(self) -> Iterator[Metric]:
        """As prometheus_client asks."""
        gauges = {
            "streams": ("Agents whose streams end here.", self._streams()),
            "coordinator_connected": (
                "Whether the coordinator can be reached: without it no agent is served.",
                self._connected(),
            ),
        }
        for name, (text, value) in gauges.items():
            yield GaugeMetricFamily(f"stilltrue_collector_{name}", text, value=float(value))
        counts = self._counts
        counters = {
            "reports": ("Reports that are kept: the coordinator has been told of them.", counts.reports),
            "report_bytes": ("The bytes of these reports, as agents send them.", counts.report_bytes),
            "reports_refused": ("Reports that were refused, with the agent's stream ended.", counts.refused),
            "reports_unkept": ("Reports that could not be kept: their members are missing from the snapshot.", counts.unkept),
        }
        for name, (text, value) in counters.items():
            yield CounterMetricFamily(f"stilltrue_collector_{name}", text, value=value)
