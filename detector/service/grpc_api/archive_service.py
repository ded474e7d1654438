"""The archive's gRPC methods: stream the rows of its tables in bounded batches, read on separate threads."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
import grpc.aio

from detector.core.document.reader import write_document
from detector.service.settings import Settings
from detector.service.storage.archive_sink import FOLDER
from stilltrue.protocol.wire.verdict import snapshot_to_wire, verdict_to_wire
from stilltrue.v1 import detector_pb2 as pb

if TYPE_CHECKING:
    from detector.archive.offsets import Index
    from detector.archive.range_reader import Batch

T = TypeVar("T")
Context = grpc.aio.ServicerContext[Any, Any]

THREADS = 2
TABLES = ("reports", "snapshots", "verdicts", "incidents")


class ArchiveService:
    """Describes the archive and streams its rows.

    A stream holds one batch and gRPC's flow-control window. A stalled reader is waited for on the event loop, which costs
    nothing, for ``archive_take_seconds_max``.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._threads = ThreadPoolExecutor(THREADS, "stilltrue-read")
        self._readers = 0
        self._refusal = ""
        self._indexes: dict[str, Index] = {}
        if not settings.archive_bytes_max:
            self._refusal = "this detector keeps no archive (--archive-bytes-max 0)"
            return
        try:
            self._indexes = _indexes(settings.data / FOLDER)
        except ImportError:
            self._refusal = "this detector keeps no archive: pyarrow is not installed there"

    async def describe(self, request: pb.DescribeArchiveRequest, context: Context) -> pb.DescribeArchiveResponse:
        """Return the ranges of positions in each table."""
        await self._check(request.table or TABLES[0], context)
        wanted = (request.table,) if request.table else TABLES
        return await self._call(lambda: _described([self._indexes[name] for name in wanted], request), context)

    async def read(self, request: pb.ReadArchiveRequest, context: Context) -> None:
        """Write the rows to ``context``, batch by batch."""
        await self._check(request.table, context)
        if self._readers >= self._settings.archive_readers_max:
            text = f"{self._readers} readers of the archive are already connected (--archive-readers-max); try again later"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        self._readers += 1
        batches: Iterator[pb.ReadArchiveResponse] = iter(())
        try:
            batches = await self._call(lambda: _responses(self._indexes[request.table], request), context)
            late = await self._write_all(batches, context)
        finally:
            self._readers -= 1
            self._threads.submit(getattr(batches, "close", lambda: None))
        if late is not None:
            await late
            text = f"nothing was read for {self._settings.archive_take_seconds_max:g} s (--archive-take-seconds-max)"
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, text)

    async def _write_all(self, batches: Iterator[pb.ReadArchiveResponse], context: Context) -> asyncio.Future[None] | None:
        """Write all batches; if the reader stalls for too long, return the pending write.

        gRPC cannot end a call during a write, so a stalled reader loses its slot, and gets the error when it reads again.
        """
        while (response := await self._call(lambda: next(batches, None), context)) is not None:
            write = asyncio.ensure_future(context.write(response))
            try:
                done, _ = await asyncio.wait({write}, timeout=self._settings.archive_take_seconds_max)
            except asyncio.CancelledError:
                write.cancel()
                raise
            if not done:
                return write
            write.result()
        return None

    async def snapshot(self, number: int) -> pb.GetSnapshotResponse | None:
        """Find a snapshot in the archive; None if it has none, or is not kept."""
        if self._refusal:
            return None
        location = str(self._settings.data / FOLDER)
        return await asyncio.get_running_loop().run_in_executor(self._threads, _archived, location, number)

    def close(self) -> None:
        """Stop starting work."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _check(self, table: str, context: Context) -> None:
        if self._refusal:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, self._refusal)
        if table not in TABLES:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"no table {table!r}; available: {', '.join(TABLES)}")

    async def _call(self, work: Callable[[], T], context: Context) -> T:
        """Do ``work`` on a thread; its errors become the call's status."""
        from detector.archive.range_reader import ColumnError, LostError  # noqa: PLC0415 - pyarrow is an extra

        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except ColumnError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except LostError as error:
            await context.abort(grpc.StatusCode.DATA_LOSS, str(error))
        except OSError as error:
            await context.abort(grpc.StatusCode.INTERNAL, f"the archive cannot be read: {error}")
        raise AssertionError("abort raises")


def _indexes(directory: Path) -> dict[str, Index]:
    from detector.archive.files import ArchiveFiles  # noqa: PLC0415
    from detector.archive.offsets import Index  # noqa: PLC0415 - pyarrow is an extra

    store = ArchiveFiles(str(directory))
    return {table: Index(store, table) for table in TABLES}


def _described(indexes: list[Index], request: pb.DescribeArchiveRequest) -> pb.DescribeArchiveResponse:
    from detector.archive.offsets import Wanted, ranges  # noqa: PLC0415 - pyarrow is an extra

    wanted = Wanted(
        snapshot_min=request.snapshot_min if request.HasField("snapshot_min") else None,
        snapshot_max=request.snapshot_max if request.HasField("snapshot_max") else None,
        day_min=request.day_min,
        day_max=request.day_max,
    )
    for index in indexes:
        index.refresh()
    return pb.DescribeArchiveResponse(
        tables=[
            pb.ArchiveTable(
                name=index.table,
                ranges=[pb.ArchiveRange(since=since, until=until) for since, until in ranges(index.pieces, wanted)],
            )
            for index in indexes
        ]
    )


def _responses(index: Index, request: pb.ReadArchiveRequest) -> Iterator[pb.ReadArchiveResponse]:
    """The responses of a call, read lazily."""
    from detector.archive.range_reader import ROWS_MAX, columns_schema, read_range, schema_message  # noqa: PLC0415 - pyarrow is an extra

    schema = columns_schema(index.table, request.columns)
    if request.until > index.end or index.lost(request.since, request.until) is not None:
        index.refresh()
    rows_max = min(request.rows_max or ROWS_MAX, ROWS_MAX)
    batches = read_range(index, request.since, request.until, schema=schema, whole=request.whole, rows_max=rows_max)
    return _messages(schema_message(schema), batches)


def _messages(schema: bytes, batches: Iterator[Batch]) -> Iterator[pb.ReadArchiveResponse]:
    yield pb.ReadArchiveResponse(schema=schema)
    for batch in batches:
        yield pb.ReadArchiveResponse(batch=batch.message(), since=batch.since, until=batch.until)


def _archived(location: str, number: int) -> pb.GetSnapshotResponse | None:
    from detector.archive.files import ArchiveError, ArchiveFiles  # noqa: PLC0415 - pyarrow is an extra
    from detector.archive.snapshot_lookup import find_snapshot  # noqa: PLC0415

    try:
        found = find_snapshot(ArchiveFiles(location), number)
    except (ArchiveError, OSError):
        return None
    if found is None:
        return None
    snapshot, verdicts = found.snapshot, [verdict_to_wire(verdict) for verdict in found.verdicts]
    summary = pb.SnapshotSummary(
        ref=snapshot_to_wire(snapshot.ref), outcome=found.outcome, begun_by=found.begun_by, missing=snapshot.missing, kept=False
    )
    return pb.GetSnapshotResponse(summary=summary, document_json=json.dumps(write_document(snapshot)), verdicts=verdicts)
