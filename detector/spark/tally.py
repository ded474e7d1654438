"""The tally of an archive's reports: workers read the files themselves and count, and one shuffle puts the counts together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from detector.analysis.counters import TALLIED, TALLY, Ends, merged, tallied
from detector.archive.files import ArchiveError, Store
from detector.spark.tables import Archive, Unit, over_units, spark_schema

LEFT_OUT = "left out"
"""The kind of a row that names a file (``one``) that proved unreadable on the way, and why (``two``)."""
TALLIES_AT_ONCE = 32


def tally_of_archive(spark: SparkSession, archive: Archive, ends: Ends) -> DataFrame:
    """Rows of :data:`~detector.analysis.counters.TALLY`, each kind and key once; files left out are among them."""

    def count(store: Store, units: Iterable[Unit]) -> Iterator[pa.RecordBatch]:
        gathered: list[pa.Table] = []
        for unit in units:
            try:
                gathered.append(tallied(store.read_parts(unit.file, TALLIED, unit.groups), ends))
            except ArchiveError as error:
                gathered.append(_left_out(unit.file.path, str(error)))
            if len(gathered) >= TALLIES_AT_ONCE:
                gathered = [merged(gathered)]
        yield from merged(gathered).to_batches()

    counted = over_units(spark, archive, "reports", count, TALLY)
    partitions = min(spark.sparkContext.defaultParallelism, counted.rdd.getNumPartitions())
    return counted.repartition(partitions, "kind", "one", "two").mapInArrow(_merging, spark_schema(TALLY))


def _merging(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from merged(pa.Table.from_batches([batch]).cast(TALLY) for batch in batches).to_batches()


def _left_out(path: str, reason: str) -> pa.Table:
    return pa.Table.from_pylist([{"kind": LEFT_OUT, "one": path, "two": reason, "snapshot": 0, "samples": 1}], schema=TALLY)
