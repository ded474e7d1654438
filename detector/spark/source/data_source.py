"""The data source ``stilltrue``: a live detector's archive as a DataFrame or a stream, with Arrow batches on the wire.

Call ``register(spark)``, then ``spark.read.format("stilltrue").option("table", "verdicts").load()``, or ``spark.readStream``.
A stream's offset is a position (:mod:`detector.archive.offsets`), which remains valid across restarts of the detector and
compaction, so a query that restarts from its checkpoint neither loses nor duplicates rows.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from detector.archive.offsets import Wanted
from detector.archive.range_reader import ColumnError, columns_schema
from detector.archive.rows.schema import TABLES
from detector.ops.address import AddressError, parse_address
from detector.spark.batch import spark_schema
from detector.spark.source.bounds import bounds_of
from detector.spark.source.detector_client import Remote, RemoteError
from stilltrue.runtime.membership.credentials import Security, SecurityRefusedError

NAME = "stilltrue"
ADDRESS = "127.0.0.1:7600"
_DIGITS_MAX = 18
PACKED = StructType([StructField("content", BinaryType()), StructField("until", LongType())])
"""The schema with ``packed``: each row has an Arrow stream of many rows, to be passed on undecoded, and the position after
them. The last row of a part has no content, only the position where the part ends."""

Range = tuple[int, int]
OPTIONS = {
    "address": "HOST:PORT of the detector; default 127.0.0.1:7600",
    "table": "reports (default), snapshots, verdicts or incidents",
    "columns": "columns to read, separated by commas; default all",
    "snapshot_min": "skip files and row groups that have only snapshots below this number (not in a stream)",
    "snapshot_max": "skip files and row groups that have only snapshots above this number (not in a stream)",
    "day_min": "skip days before this one (YYYY-MM-DD; not in a stream)",
    "day_max": "skip days after this one (not in a stream)",
    "tls_ca_file": "PEM CA bundle to verify the detector with, on every worker; enables TLS",
    "tls_cert_file": "PEM client certificate, on every worker",
    "tls_key_file": "PEM private key of the certificate, on every worker",
    "token_file": "file with the bearer token, on every worker",
    "rows_per_batch_max": "rows per micro-batch of a stream; default 200000",
    "rows_per_partition": "rows per task; default 50000",
    "starting": "earliest (default), latest or a position: where a new stream begins",
    "fail_on_data_loss": "true (default): fail if rows were removed before they were read; false: continue",
    "retry_seconds": "how long to retry a detector that is down; default 60",
    "packed": "true: undecoded rows (a column `content`), for programs that pass them on",
}
"""The options of the source. Names are case-insensitive."""


class SourceOptionError(ValueError):
    """An option is invalid; the message is one line that says what is valid."""


def register(spark: SparkSession) -> None:
    """Register ``format("stilltrue")`` with a session.

    Workers of a local session will use this Python, which has the packages, unless another one is configured.
    """
    context = spark.sparkContext
    chosen = "PYSPARK_PYTHON" in os.environ or context.getConf().contains("spark.pyspark.python")
    if (context.master or "").startswith("local") and not chosen:
        context.pythonExec = sys.executable
    spark.dataSource.register(StilltrueSource)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The parsed options."""

    remote: Remote
    table: str
    schema: pa.Schema
    columns: tuple[str, ...]
    wanted: Wanted
    rows_per_batch_max: int
    rows_per_partition: int
    starting: int | None
    latest: bool
    whole: bool
    packed: bool


def source_options(options: MutableMapping[str, str]) -> SourceOptions:
    """Parse the options. Raises :class:`SourceOptionError`."""
    given = {name.lower(): value for name, value in options.items()}
    for name in sorted(given):
        if name not in OPTIONS:
            raise SourceOptionError(f"no option {name!r}; available: {', '.join(OPTIONS)}")
    table = given.get("table", "reports")
    if table not in TABLES:
        raise SourceOptionError(f"table: no table {table!r}; available: {', '.join(TABLES)}")
    address = given.get("address", ADDRESS)
    columns = tuple(name.strip() for name in given.get("columns", "").split(",") if name.strip())
    try:
        parse_address(address, port_min=1)
        schema = columns_schema(table, columns)
        security = Security(
            ca=given.get("tls_ca_file", ""),
            certificate=given.get("tls_cert_file", ""),
            key=given.get("tls_key_file", ""),
            token_file=given.get("token_file", ""),
        )
    except AddressError as error:
        raise SourceOptionError(f"address: {error}; for example {ADDRESS}") from None
    except (ColumnError, SecurityRefusedError) as error:
        raise SourceOptionError(str(error)) from None
    remote = Remote(address=address, security=security, retry_seconds=_integer(given, "retry_seconds", 60, least=0))
    return SourceOptions(
        remote=remote,
        table=table,
        schema=schema,
        columns=columns,
        wanted=_wanted(given),
        rows_per_batch_max=_integer(given, "rows_per_batch_max", 200_000),
        rows_per_partition=_integer(given, "rows_per_partition", 50_000),
        starting=_position(given.get("starting", "")),
        latest=_starting(given) == "latest",
        whole=_choice(given, "fail_on_data_loss", ("true", "false")) == "true",
        packed=_choice(given, "packed", ("false", "true")) == "true",
    )


def _wanted(given: dict[str, str]) -> Wanted:
    try:
        return bounds_of(given)
    except ValueError as error:
        raise SourceOptionError(f"snapshot_min, snapshot_max, day_min, day_max: {error}") from None


def _position(text: str) -> int | None:
    digits = text.removeprefix("-")
    return int(text) if digits.isdecimal() and len(digits) <= _DIGITS_MAX else None


def _starting(given: dict[str, str]) -> str:
    return "" if _position(given.get("starting", "")) is not None else _choice(given, "starting", ("earliest", "latest"))


def _integer(given: dict[str, str], name: str, default: int, *, least: int = 1) -> int:
    text = given.get(name, str(default))
    if not text.isdecimal() or len(text) > _DIGITS_MAX or int(text) < least:
        raise SourceOptionError(f"{name}: {text!r} is not an integer of at least {least}")
    return int(text)


def _choice(given: dict[str, str], name: str, choices: Sequence[str]) -> str:
    """Return an option with a fixed set of values, of which the first is the default."""
    text = given.get(name, choices[0]).lower()
    if text not in choices:
        raise SourceOptionError(f"{name}: {text!r} is not one of {', '.join(choices)}")
    return text


@dataclass
class Part(InputPartition):
    """The range of positions that one task reads."""

    since: int
    until: int


class StilltrueSource(DataSource):
    """The data source that Spark finds by the name ``stilltrue``."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return NAME

    def schema(self) -> StructType:
        """The table's columns."""
        options = source_options(self.options)
        return PACKED if options.packed else spark_schema(options.schema)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        """Return the reader for ``spark.read``."""
        return _Reader(source_options(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """Return the reader for ``spark.readStream``."""
        return _StreamReader(source_options(self.options))


class _Reader(DataSourceReader):
    """Reads the rows that the archive has now."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        wanted, rows = self._options.wanted, self._options.rows_per_partition
        ranges = self._options.remote.ranges(self._options.table, wanted)
        if wanted.all:
            return parts(ranges, ranges[0][0], ranges[-1][1], rows) if ranges else []
        return [part for range_ in ranges for part in parts([range_], *range_, rows)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _rows(self._options, partition, whole=False)


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads new rows as they arrive. An offset is ``{"table": ..., "position": ...}``; all rows before it have been read."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._stop_at: int | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        if self._options.starting is not None:
            return self._offset(self._options.starting)
        ranges = self._ranges()
        position = 0 if not ranges else ranges[-1][1] if self._options.latest else ranges[0][0]
        return self._offset(position)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._options.rows_per_batch_max)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        since, ranges = self._position(start), self._ranges()
        end = ranges[-1][1] if ranges else 0
        if end < since and self._options.whole:
            text = (
                f"the detector's archive of {self._options.table} ends at position {end}, but this stream has already read up "
                f"to {since}: it is another archive; use a new checkpoint, or continue with fail_on_data_loss=false"
            )
            raise RemoteError(text)
        end = end if self._stop_at is None else min(end, self._stop_at)
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        if isinstance(limit, ReadAllAvailable) or rows is None:
            return self._offset(max(since, end))
        return self._offset(max(since, min(end, after_rows(ranges, since, rows))))

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        ranges = self._ranges()
        return self._offset(ranges[-1][1] if ranges else 0)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        ranges = self._ranges()
        self._stop_at = ranges[-1][1] if ranges else 0

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return parts(self._ranges(), self._position(start), self._position(end), self._options.rows_per_partition)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _rows(self._options, partition, whole=self._options.whole)

    def _ranges(self) -> tuple[Range, ...]:
        return self._options.remote.ranges(self._options.table)

    def _offset(self, position: int) -> dict[str, Any]:
        return {"table": self._options.table, "position": position}

    def _position(self, offset: dict[str, Any]) -> int:
        if offset["table"] != self._options.table:
            raise SourceOptionError(f"table: the checkpoint is for {offset['table']}, not for {self._options.table}")
        return int(offset["position"])


def after_rows(ranges: Sequence[Range], since: int, rows: int) -> int:
    """Return the position ``rows`` rows after ``since``, or that after the last row."""
    at = since
    for first, until in ranges:
        if until > at:
            first = max(first, at)  # noqa: PLW2901
            at = min(until, first + rows)
            rows -= at - first
            if not rows:
                break
    return at


def parts(ranges: Sequence[Range], since: int, until: int, rows: int) -> list[InputPartition]:
    """Split ``since`` to ``until`` into parts of about ``rows`` rows each, without gaps."""
    found: list[InputPartition] = []
    at = since
    while at < until:
        end = after_rows(ranges, at, rows)
        end = until if end <= at else min(end, until)
        if after_rows(ranges, end, 1) == end:
            end = until
        found.append(Part(since=at, until=end))
        at = end
    return found


def _rows(options: SourceOptions, part: InputPartition | None, *, whole: bool) -> Iterator[pa.RecordBatch]:
    if not isinstance(part, Part):
        return  # for a table without rows, Spark starts one task without a part
    for message in options.remote.read(options.table, options.columns, part.since, part.until, whole=whole):
        if options.packed:
            yield _packed(message.content, message.until)
        else:
            yield from pa.ipc.open_stream(message.content)
    if options.packed:
        yield _packed(None, part.until)


def _packed(content: bytes | None, until: int) -> pa.RecordBatch:
    return pa.record_batch({"content": pa.array([content], pa.binary()), "until": pa.array([until], pa.int64())})
