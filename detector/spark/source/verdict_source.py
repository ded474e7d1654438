"""A data source of verdicts on an archive's snapshots; only the wanted snapshots are evaluated."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from detector.analysis.kernels import evaluated
from detector.analysis.verdicts import FOUND
from detector.archive.files import ArchiveError, ArchiveFiles
from detector.archive.offsets import Wanted
from detector.archive.units import Archive, Unit, open_archive, shares
from detector.core.registry import PredicateSettings, find_predicates
from detector.spark.source.bounds import bounds_of, options_of

NAME = "stilltrue-verdicts"


def archive_verdicts(
    spark: SparkSession,
    archive: Archive,
    predicates: Sequence[str],
    settings: Mapping[str, PredicateSettings],
    wanted: Wanted,
    *,
    tasks: int,
) -> DataFrame:
    """Return rows of ``FOUND`` on the ``wanted`` snapshots of ``archive`` as of when a query runs, in up to ``tasks`` parts."""
    spark.dataSource.register(VerdictSource)
    options = {
        "location": archive.store.location,
        "since": archive.since,
        "until": archive.until,
        "predicates": json.dumps(list(predicates)),
        "settings": json.dumps({name: dict(values) for name, values in settings.items()}),
        "tasks": str(tasks),
    }
    return spark.read.format(NAME).options(**options, **options_of(wanted)).load()


@dataclass
class Part(InputPartition):
    """Units that one task evaluates."""

    units: list[Unit]


class VerdictSource(DataSource):
    """The data source that Spark finds by the name ``stilltrue-verdicts``."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return NAME

    def schema(self) -> StructType:
        """The schema ``FOUND``."""
        return from_arrow_schema(FOUND)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        """Return the reader for ``spark.read``."""
        return _Reader(dict(self.options))


class _Reader(DataSourceReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options
        self._wanted = bounds_of(options)

    def partitions(self) -> Sequence[InputPartition]:
        archive = open_archive(self._options["location"], since=self._options["since"], until=self._options["until"])
        return [Part(units) for units in shares(archive.units("snapshots", self._wanted), int(self._options["tasks"]))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        names: list[str] = json.loads(self._options["predicates"])
        settings: dict[str, dict[str, Any]] = json.loads(self._options["settings"])
        asked = find_predicates(names, settings)
        for found in evaluated(ArchiveFiles(self._options["location"]), partition.units, asked, self._wanted):
            if isinstance(found, ArchiveError):
                raise found
            yield from found.to_batches()
