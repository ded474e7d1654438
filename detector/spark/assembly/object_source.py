"""A stream source of snapshots' records in an object store; an offset has the next object of each producer."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

from detector.assembly.cluster import REPORTS, Cluster, RecordsLostError
from detector.assembly.objects import Topic, Written, advanced, beginning, fresh, position_of
from detector.spark.assembly.options import RECORDS, RECORDS_SPARK, cluster_of

NAME = "stilltrue-objects"
LIST_SECONDS = 1.0
"""Interval between listings of the store."""
PARTS = 4


@dataclass
class Part(InputPartition):
    """Objects that one task reads: path and time of writing (milliseconds) of each."""

    objects: tuple[tuple[str, int], ...]


class ObjectSource(DataSource):
    """The data source that Spark finds by the name ``stilltrue-objects``."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return NAME

    def schema(self) -> str:
        """The schema :data:`~detector.spark.assembly.options.RECORDS`."""
        return RECORDS_SPARK

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """Return the reader for ``spark.readStream``."""
        return _Reader(cluster_of(self.options), int(self.options["records_per_batch_max"]))


class _Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """An offset is a :class:`~detector.assembly.objects.Position`."""

    def __init__(self, cluster: Cluster, records_max: int) -> None:
        """``records_max``: approximate number of records per micro-batch."""
        self._topic = Topic(cluster, REPORTS)
        self._records_max = records_max
        self._listed_at = -LIST_SECONDS
        self._until: float | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return beginning(self._topic.listed()).json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._until = 1000 * time.time()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002, N802
        now = time.monotonic()
        if self._until is None and now - self._listed_at < LIST_SECONDS:
            return start
        self._listed_at = now
        position = position_of(start)
        listed = [each for each in self._topic.listed(position.hour) if self._until is None or each.at <= self._until]
        return advanced(position, self._oldest(fresh(position, listed, time.time()))).json()

    def _oldest(self, found: Sequence[Written]) -> list[Written]:
        """Return the oldest objects, up to the same time for all producers, so that event time advances evenly."""
        records, until = 0, 0
        for each in found:
            records, until = records + each.count, each.at
            if records >= self._records_max:
                break
        taken: list[Written] = []
        held: set[str] = set()
        for each in sorted(found, key=lambda each: each.number):
            if each.at > until:
                held.add(each.producer)  # its later objects must wait as well
            elif each.producer not in held:
                taken.append(each)
        return taken

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        low, high = position_of(start), position_of(end)
        listed = {(each.producer, each.number): each for each in self._topic.listed(low.hour)}
        objects: list[tuple[str, int]] = []
        for producer, last in sorted(high.following.items()):
            for number in range(low.following.get(producer, 0), last):
                if (producer, number) not in listed:
                    raise RecordsLostError(f"object {number} of {producer} was removed before it was read")
                each = listed[producer, number]
                objects.append((each.path, each.at))
        return [Part(tuple(objects[at::PARTS])) for at in range(min(PARTS, len(objects)))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        for path, at in partition.objects:
            rows = self._topic.read(path)
            times = pa.array([1000 * at] * rows.num_rows, RECORDS.field("at").type)
            yield from pa.table([rows.column("key"), rows.column("value"), times], schema=RECORDS).combine_chunks().to_batches()

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: Spark's checkpoint has the offset."""


def unread_objects(cluster: Cluster, read: Mapping[str, Any]) -> int:
    """Count the records after an offset. Raises :class:`~detector.assembly.cluster.RecordsUnavailableError`."""
    position = position_of(read)
    listed = Topic(cluster, REPORTS).listed(position.hour)
    return sum(each.count for each in listed if each.number >= position.following.get(each.producer, 0))
