"""The data source ``stilltrue``: a live detector's archive as a DataFrame or a stream, with Arrow batches on the wire.

``register(spark)``, then ``spark.read.format("stilltrue").option("table", "verdicts").load()``, or ``spark.readStream``.
A stream's offset is a position (:mod:`detector.archive.offsets`): it holds over restarts of the detector and compaction, so a
query that starts again from its checkpoint loses and doubles nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import BinaryType, StructField, StructType

from detector.archive.reader import ColumnError, columns_schema
from detector.archive.schema import TABLES
from detector.ops.address import AddressError, parse_address
from detector.spark.batch import spark_schema
from detector.spark.source.remote import Remote, RemoteError
from stilltrue.runtime.credentials import Security, SecurityRefusedError

NAME = "stilltrue"
ADDRESS = "127.0.0.1:7600"
PACKED = StructType([StructField("content", BinaryType())])
"""With ``packed``: each row is an Arrow stream of many rows, to be handed on unopened."""

Range = tuple[int, int]
OPTIONS = {
    "address": "HOST:PORT of the detector; default 127.0.0.1:7600",
    "table": "reports (default), snapshots, verdicts or incidents",
    "columns": "some of the table's columns, separated by commas; default all",
    "tls_ca_file": "PEM CA bundle to verify the detector with, on every worker; enables TLS",
    "tls_cert_file": "PEM client certificate, on every worker",
    "tls_key_file": "PEM private key of the certificate, on every worker",
    "token_file": "file with the bearer token, on every worker",
    "rows_per_batch_max": "rows per micro-batch of a stream; default 200000",
    "rows_per_partition": "rows per task; default 50000",
    "starting": "earliest (default) or latest: where a new stream begins",
    "fail_on_data_loss": "true (default): fail if rows were removed before they were read; false: continue",
    "retry_seconds": "how long to retry a detector that is down; default 60",
    "packed": "true: undecoded rows (a column `content`), for programs that pass them on",
}
"""What the source understands. Names are taken without regard to case."""


class SourceOptionError(ValueError):
    """An option that cannot be used; one line that says what it may be."""


def register(spark: SparkSession) -> None:
    """Make ``format("stilltrue")`` known to a session."""
    spark.dataSource.register(StilltrueSource)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the options say."""

    remote: Remote
    table: str
    schema: pa.Schema
    columns: tuple[str, ...]
    rows_per_batch_max: int
    rows_per_partition: int
    latest: bool
    whole: bool
    packed: bool


def wanted(options: MutableMapping[str, str]) -> Wanted:
    """Read the options. Raises :class:`SourceOptionError`."""
    given = {name.lower(): value for name, value in options.items()}
    for name in sorted(given):
        if name not in OPTIONS:
            raise SourceOptionError(f"no option {name!r}; there are {', '.join(OPTIONS)}")
    table = given.get("table", "reports")
    if table not in TABLES:
        raise SourceOptionError(f"table: no table {table!r}; there are {', '.join(TABLES)}")
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
    remote = Remote(address=address, security=security, retry_seconds=_whole(given, "retry_seconds", 60, least=0))
    return Wanted(
        remote=remote,
        table=table,
        schema=schema,
        columns=columns,
        rows_per_batch_max=_whole(given, "rows_per_batch_max", 200_000),
        rows_per_partition=_whole(given, "rows_per_partition", 50_000),
        latest=_choice(given, "starting", ("earliest", "latest")) == "latest",
        whole=_choice(given, "fail_on_data_loss", ("true", "false")) == "true",
        packed=_choice(given, "packed", ("false", "true")) == "true",
    )


def _whole(given: dict[str, str], name: str, default: int, *, least: int = 1) -> int:
    text = given.get(name, str(default))
    if not text.isdigit() or int(text) < least:
        raise SourceOptionError(f"{name}: {text!r} is not an integer of at least {least}")
    return int(text)


def _choice(given: dict[str, str], name: str, choices: Sequence[str]) -> str:
    """The first of the choices is the default."""
    text = given.get(name, choices[0]).lower()
    if text not in choices:
        raise SourceOptionError(f"{name}: {text!r} is not one of {', '.join(choices)}")
    return text


@dataclass
class Part(InputPartition):
    """Positions that one task reads."""

    since: int
    until: int


class StilltrueSource(DataSource):
    """What Spark asks for by the name ``stilltrue``."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return NAME

    def schema(self) -> StructType:
        """The table's columns."""
        asked = wanted(self.options)
        return PACKED if asked.packed else spark_schema(asked.schema)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        """For ``spark.read``."""
        return _Reader(wanted(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """For ``spark.readStream``."""
        return _StreamReader(wanted(self.options))


class _Reader(DataSourceReader):
    """What there is now."""

    def __init__(self, asked: Wanted) -> None:
        self._asked = asked

    def partitions(self) -> Sequence[InputPartition]:
        ranges = self._asked.remote.ranges(self._asked.table)
        if not ranges:
            return []
        return parts(ranges, ranges[0][0], ranges[-1][1], self._asked.rows_per_partition)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _rows(self._asked, partition, whole=False)


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What comes. An offset is ``{"table": ..., "position": ...}``: all before it has been read."""

    def __init__(self, asked: Wanted) -> None:
        self._asked = asked
        self._stop_at: int | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        ranges = self._ranges()
        position = 0 if not ranges else ranges[-1][1] if self._asked.latest else ranges[0][0]
        return self._offset(position)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._asked.rows_per_batch_max)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        since, ranges = self._position(start), self._ranges()
        end = ranges[-1][1] if ranges else 0
        if end < since and self._asked.whole:
            text = (
                f"the detector's archive of {self._asked.table} ends at position {end}, and this stream has read up to "
                f"{since}: it is another archive; begin with a new checkpoint, or continue with fail_on_data_loss=false"
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
        return parts(self._ranges(), self._position(start), self._position(end), self._asked.rows_per_partition)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _rows(self._asked, partition, whole=self._asked.whole)

    def _ranges(self) -> tuple[Range, ...]:
        return self._asked.remote.ranges(self._asked.table)

    def _offset(self, position: int) -> dict[str, Any]:
        return {"table": self._asked.table, "position": position}

    def _position(self, offset: dict[str, Any]) -> int:
        if offset["table"] != self._asked.table:
            raise SourceOptionError(f"table: the checkpoint is of {offset['table']}, not of {self._asked.table}")
        return int(offset["position"])


def after_rows(ranges: Sequence[Range], since: int, rows: int) -> int:
    """The position after ``rows`` rows from ``since`` on, or after the last."""
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
    """``since`` to ``until`` in parts of about ``rows`` rows each; together they leave nothing out."""
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


def _rows(asked: Wanted, part: InputPartition, *, whole: bool) -> Iterator[pa.RecordBatch]:
    assert isinstance(part, Part)
    for message in asked.remote.read(asked.table, asked.columns, part.since, part.until, whole=whole):
        if asked.packed:
            yield pa.record_batch({"content": pa.array([message.content], pa.binary())})
        else:
            yield from pa.ipc.open_stream(message.content)
