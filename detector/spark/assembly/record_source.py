"""A stream source of snapshots' records in Kafka; an offset has the next record of each partition.

Spark's own Kafka source is a jar that must match Spark's version; this one needs only Kafka's Python client.

Rules:

1. A micro-batch that is behind takes records up to the same time in all partitions. So event time advances evenly, and no
   partition's records are late because another partition was read faster.
2. Records that Kafka removed before they were read are an error; they are never skipped silently.
3. While Kafka is unreachable there are no new records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, KafkaException, TopicPartition
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

from detector.assembly.cluster import REPORTS, Cluster, RecordsLostError, RecordsUnavailableError
from detector.assembly.kafka import bounds, partitions
from detector.spark.assembly.options import RECORDS, RECORDS_SPARK, cluster_of

NAME = "stilltrue-records"
READ_SECONDS_MAX = 30.0
ASKED_SECONDS_MAX = 2.0
"""Time limit for querying the lag at a scrape."""
BATCH_BYTES = 16 * 2**20
_AT_ONCE = 500


@dataclass
class Part(InputPartition):
    """Records of one partition, from one offset to another."""

    partition: int
    low: int
    high: int


class RecordSource(DataSource):
    """The data source that Spark finds by the name ``stilltrue-records``."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return NAME

    def schema(self) -> str:
        """The schema :data:`RECORDS`."""
        return RECORDS_SPARK

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """Return the reader for ``spark.readStream``."""
        return _Reader(self.options)


class _Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """An offset is ``{"PARTITION": NEXT}``."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._cluster = cluster_of(options)
        self._topic = self._cluster.topic(REPORTS)
        self._records_max = int(options["records_per_batch_max"])
        self._driver_consumer: Consumer | None = None
        self._last: dict[str, int] | None = None

    def _consumer(self) -> Consumer:
        most = self._cluster.message_bytes_max
        return Consumer(
            self._cluster.settings(
                **{
                    "group.id": self._cluster.topic("assembly"),
                    "enable.auto.commit": False,
                    "auto.offset.reset": "error",
                    "fetch.message.max.bytes": most,
                    "fetch.max.bytes": 2 * most,
                    "queued.max.messages.kbytes": max(65_536, 2 * most // 1024),
                }
            )
        )

    @property
    def _driver(self) -> Consumer:
        """The driver's own consumer, which reads only offsets."""
        self._driver_consumer = self._driver_consumer or self._consumer()
        return self._driver_consumer

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {str(each): bounds(self._driver, self._topic, each)[0] for each in partitions(self._driver, self._topic)}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._last = self._ends()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: ARG002, N802
        try:
            ends = self._last or self._ends()
        except KafkaException:
            return start  # rule 3
        behind = sum(end - start.get(each, 0) for each, end in ends.items())
        return self._offsets_at_one_time(start, ends) if behind > self._records_max else ends

    def _ends(self) -> dict[str, int]:
        return {str(each): bounds(self._driver, self._topic, each)[1] for each in partitions(self._driver, self._topic)}

    def _offsets_at_one_time(self, start: Mapping[str, int], ends: Mapping[str, int]) -> dict[str, int]:
        """Apply rule 1: return all partitions' offsets at the time when the first of them reaches its share of the batch."""
        share = max(1, self._records_max // len(ends))
        far = [each for each, end in ends.items() if end - start.get(each, 0) > share]
        times = [self._record_time(int(each), start.get(each, 0) + share) for each in far]
        if not times:
            return dict(ends)
        asked = [TopicPartition(self._topic, int(each), min(times)) for each in ends]
        found = {str(each.partition): each.offset for each in self._driver.offsets_for_times(asked, timeout=READ_SECONDS_MAX)}
        offsets = {each: max(start.get(each, 0), found[each] if found[each] >= 0 else end) for each, end in ends.items()}
        return offsets if offsets != dict(start) else dict(ends)  # more than a share in one millisecond

    def _record_time(self, partition: int, offset: int) -> int:
        """Return the time at which Kafka received the record at an offset, in milliseconds."""
        consumer = self._consumer()
        try:
            consumer.assign([TopicPartition(self._topic, partition, offset)])
            message = consumer.poll(READ_SECONDS_MAX)
            if message is None or message.error():
                raise RecordsLostError(f"no record {offset} of partition {partition}")
            return int(message.timestamp()[1])
        finally:
            consumer.close()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [Part(int(each), start.get(each, 0), high) for each, high in end.items() if high > start.get(each, 0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        consumer = self._consumer()
        try:
            low, _ = bounds(consumer, self._topic, partition.partition)
            if low > partition.low:
                text = f"records {partition.low} to {low} of partition {partition.partition} were removed before they were read"
                raise RecordsLostError(text)
            consumer.assign([TopicPartition(self._topic, partition.partition, partition.low)])
            yield from _read(consumer, partition)
        finally:
            consumer.close()

    def commit(self, end: dict[str, int]) -> None:
        """Do nothing: Spark's checkpoint has the offset."""


def _read(consumer: Consumer, part: Part) -> Iterator[pa.RecordBatch]:
    rows: list[tuple[str, bytes, int]] = []
    held, at = 0, part.low
    while at < part.high:
        messages = consumer.consume(min(_AT_ONCE, part.high - at), timeout=READ_SECONDS_MAX)
        if not messages:
            raise RecordsLostError(f"Kafka did not return record {at} of partition {part.partition} in {READ_SECONDS_MAX:g} s")
        for message in messages:
            if (error := message.error()) is not None:
                raise RecordsLostError(f"record {at} of partition {part.partition}: {error.str()}")
            if (offset := message.offset() or 0) >= part.high:
                break
            value = message.value() or b""
            rows.append(((message.key() or b"").decode(), value, message.timestamp()[1] * 1000))
            held, at = held + len(value), offset + 1
            if held > BATCH_BYTES:
                yield _batch(rows)
                rows, held = [], 0
    if rows:
        yield _batch(rows)


def _batch(rows: Sequence[tuple[str, bytes, int]]) -> pa.RecordBatch:
    columns = [list(each) for each in zip(*rows, strict=True)]
    arrays = [pa.array(each, kind) for each, kind in zip(columns, RECORDS.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=RECORDS)


class UnreadRecords:
    """Counts the records after given offsets of the topic of reports."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._topic = cluster.topic(REPORTS)
        self._consumer = Consumer(cluster.settings(**{"group.id": cluster.topic("metrics"), "enable.auto.commit": False}))

    def __call__(self, read: Mapping[str, int]) -> int:
        """See :data:`~detector.spark.assembly.metrics.Unread`."""
        unread = 0
        for partition, offset in read.items():
            at = TopicPartition(self._topic, int(partition))
            try:
                found = self._consumer.get_watermark_offsets(at, timeout=ASKED_SECONDS_MAX)
            except KafkaException as error:
                raise RecordsUnavailableError(f"Kafka at {self._cluster.servers}: {error}") from None
            if found is not None:
                unread += max(0, int(found[1]) - offset)
        return unread
