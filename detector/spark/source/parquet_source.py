"""A data source for a table of an archive in an object store; our workers read it with the usual credentials."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from detector.archive.files import ArchiveFiles
from detector.archive.offsets import Wanted
from detector.archive.rows.schema import TABLES
from detector.archive.units import Archive, Piece, open_archive, shares
from detector.spark.source.bounds import bounds_of, options_of

NAME = "stilltrue-table"


def archive_table(spark: SparkSession, archive: Archive, name: str, wanted: Wanted, *, tasks: int) -> DataFrame:
    """Return the ``wanted`` rows of a table with their ``day``, as of when a query runs, in ``tasks`` parts."""
    spark.dataSource.register(TableSource)
    options = {"location": archive.store.location, "since": archive.since, "until": archive.until}
    return spark.read.format(NAME).options(**options, **options_of(wanted), table=name, tasks=str(tasks)).load()


@dataclass
class Part(InputPartition):
    """Row groups that one task reads."""

    pieces: list[Piece]


class TableSource(DataSource):
    """The data source that Spark finds by the name ``stilltrue-table``."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return NAME

    def schema(self) -> StructType:
        """The table's columns and ``day``."""
        return from_arrow_schema(_with_day(TABLES[self.options["table"]]))

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        """Return the reader for ``spark.read``."""
        return _Reader(dict(self.options))


class _Reader(DataSourceReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options
        self._schema = TABLES[options["table"]]
        self._wanted = bounds_of(options)

    def partitions(self) -> Sequence[InputPartition]:
        archive = open_archive(self._options["location"], since=self._options["since"], until=self._options["until"])
        parts = shares(archive.units(self._options["table"], self._wanted), int(self._options["tasks"]))
        return [Part([piece for unit in units for piece in unit.pieces]) for units in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Part):
            return  # for a table without rows, Spark starts one task without a part
        store = ArchiveFiles(self._options["location"])
        for file, groups in partition.pieces:
            for group in groups:
                rows = self._wanted.rows(store.read_parts(file, self._schema, [group]))
                days = pa.array([file.day] * rows.num_rows, pa.string())
                yield from rows.append_column(pa.field("day", pa.string()), days).to_batches()


def _with_day(schema: pa.Schema) -> pa.Schema:
    return schema.append(pa.field("day", pa.string()))
