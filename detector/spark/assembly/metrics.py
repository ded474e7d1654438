"""The metrics of a running assembly, for Prometheus: its tally, how far it is behind Kafka, and how long a batch takes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from detector.assembly.cluster import REPORTS, Cluster
from detector.spark.assembly.tally import TallyFile

KAFKA_SECONDS_MAX = 2.0
"""How long Kafka is asked at each scrape."""
Ends = Callable[[Mapping[str, int]], int]
"""How many records there are behind these offsets, by partition. Raises ``KafkaException``."""


class AssemblyMetrics(Collector):
    """As the tally, Spark's last progress and Kafka say whenever somebody asks."""

    def __init__(self, tally: TallyFile, progress: Callable[[], Mapping[str, Any] | None], unread: Ends) -> None:
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
                "How often Kafka did not say how far its topic goes, when asked for these metrics.",
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
        except KafkaException:
            self._kafka_errors += 1
            return
        yield _gauge("lag_records", "Records in Kafka that are not read yet.", unread)


def read_up_to(progress: Mapping[str, Any]) -> dict[str, int] | None:
    """The next offset of each partition, from Spark's progress; None before anything was read."""
    for source in progress.get("sources", ()):
        offset = source.get("endOffset")
        found = json.loads(offset) if isinstance(offset, str) else offset
        if found:
            return {str(partition): int(at) for partition, at in found.items()}
    return None


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"stilltrue_assembly_{name}", text, value=value)


class Unread:
    """How many records the topic of reports has behind some offsets, as Kafka says."""

    def __init__(self, cluster: Cluster) -> None:
        self._topic = cluster.topic(REPORTS)
        self._consumer = Consumer(cluster.settings(**{"group.id": cluster.topic("metrics"), "enable.auto.commit": False}))

    def __call__(self, read: Mapping[str, int]) -> int:
        """As :data:`Ends`."""
        unread = 0
        for partition, offset in read.items():
            bounds = self._consumer.get_watermark_offsets(
                TopicPartition(self._topic, int(partition)), timeout=KAFKA_SECONDS_MAX
            )
            if bounds is not None:
                unread += max(0, int(bounds[1]) - offset)
        return unread

    def close(self) -> None:
        """Leave Kafka."""
        self._consumer.close()
