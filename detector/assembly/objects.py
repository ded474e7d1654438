"""Reads and writes records as objects in a store or directory, which can replace Kafka if seconds of latency are acceptable.

Rules:

1. An object ``TOPIC/HOUR/PRODUCER-NUMBER-MILLISECONDS-COUNT.records`` holds the records of one write by one producer, and
   appears atomically. A producer's numbers increase by one, and it writes an object only once the previous one exists. After a
   failure it continues under a new name.
2. A record is acknowledged once its object exists.
3. A reader takes each producer's objects in order, up to a gap. A gap that persists is a loss: this is an error and never
   skipped. The owner of the store removes objects (by a lifecycle rule) long after they were read.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyarrow import fs

from detector.archive.files import ArchiveError, ArchiveFiles, named
from detector.assembly.cluster import Cluster, RecordsLostError, RecordsUnavailableError
from detector.ops.files.atomic_file import write_atomically

SCHEMA = pa.schema([("key", pa.string()), ("value", pa.binary())])
LINGER_SECONDS = 0.2
POLL_SECONDS = 0.5
BYTES_AT_ONCE = 16 * 2**20
DELIVERY_SECONDS_MAX = 20.0
LOST_SECONDS = 60.0
"""A gap counts as a loss once the objects behind it are this old: a listing may show an object before an earlier one."""
_MAY_CONNECT = ("s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")
"""Schemes of stores that may be asked for something, and so be unreachable, as soon as they are opened."""
_HOUR = "%Y%m%d%H"
_HOUR_SECONDS = 3600


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Written:
    """One object. ``at``: when it was written, in milliseconds by the producer's clock. ``count``: its number of records."""

    at: int
    producer: str
    number: int
    count: int
    path: str = field(compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A reader's position: each producer's next number (``following``), and the first hour to list."""

    hour: str = ""
    following: Mapping[str, int] = field(default_factory=dict)

    def json(self) -> dict[str, Any]:
        """The position as a Spark offset."""
        return {"hour": self.hour, "following": dict(sorted(self.following.items()))}


def position_of(raw: Mapping[str, Any]) -> Position:
    """The position from a Spark offset."""
    return Position(hour=raw["hour"], following=raw["following"])


@dataclass(frozen=True, slots=True)
class Topic:
    """The objects of one topic."""

    cluster: Cluster
    name: str

    def listed(self, since: str = "") -> list[Written]:
        """All objects from the hour ``since`` on, in order. Raises :class:`RecordsUnavailableError`."""
        try:
            store = ArchiveFiles(self.cluster.servers)
            root = f"{store.root}/{self.cluster.topic(self.name)}"
            hours = _entries(store, root, fs.FileType.Directory)
            found = [each for hour in sorted(hours) if hour >= since for each in self._hour(store, f"{root}/{hour}")]
        except (OSError, ArchiveError) as error:
            raise RecordsUnavailableError(named(self.cluster.servers, _one_line(error))) from None
        return sorted(found)

    def _hour(self, store: ArchiveFiles, folder: str) -> Iterable[Written]:
        for name in _entries(store, folder, fs.FileType.File):
            stem, dot, kind = name.partition(".")
            if dot and kind == "records":
                producer, number, at, count = stem.split("-")
                yield Written(at=int(at), producer=producer, number=int(number), count=int(count), path=f"{folder}/{name}")

    def read(self, path: str) -> pa.Table:
        """The records of an object. Raises OSError."""
        with ArchiveFiles(self.cluster.servers).filesystem.open_input_file(path) as source:
            return pa.ipc.open_file(source.read_buffer()).read_all()

    def write(self, producer: str, number: int, records: Sequence[tuple[str, bytes]]) -> None:
        """Write an object atomically. Raises OSError."""
        keys, values = zip(*records, strict=True)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, SCHEMA, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_table(pa.table([pa.array(keys, pa.string()), pa.array(values, pa.binary())], schema=SCHEMA))
        now = time.time()
        hour = datetime.fromtimestamp(now, UTC).strftime(_HOUR)
        store = ArchiveFiles(self.cluster.servers)
        folder = f"{store.root}/{self.cluster.topic(self.name)}/{hour}"
        path = f"{folder}/{producer}-{number:09d}-{int(1000 * now):013d}-{len(records)}.records"
        if isinstance(store.filesystem, fs.LocalFileSystem):
            Path(folder).mkdir(parents=True, exist_ok=True)
            write_atomically(Path(path), memoryview(sink.getvalue()))
            return
        store.filesystem.create_dir(folder, recursive=True)
        with store.filesystem.open_output_stream(path) as target:
            target.write(sink.getvalue())


def beginning(listed: Sequence[Written]) -> Position:
    """The position before all listed objects."""
    first: dict[str, int] = {}
    for each in listed:
        first[each.producer] = min(each.number, first.get(each.producer, each.number))
    return Position(following=first)


def fresh(position: Position, listed: Sequence[Written], now: float) -> list[Written]:
    """The objects that follow a position without a gap, in order (rule 3). Raises :class:`RecordsLostError`."""
    by_producer: dict[str, list[Written]] = defaultdict(list)
    for each in listed:
        if each.number >= position.following.get(each.producer, 0):
            by_producer[each.producer].append(each)
    found: list[Written] = []
    for producer, own in by_producer.items():
        low = position.following.get(producer, 0)
        own.sort(key=lambda each: each.number)
        found += [each for at, each in enumerate(own) if each.number == low + at]
        behind = [each for at, each in enumerate(own) if each.number != low + at]
        if behind and min(each.at for each in behind) < 1000 * (now - LOST_SECONDS):
            raise RecordsLostError(f"object {behind[0].number - 1} of {producer} was removed before it was read")
    return sorted(found)


def advanced(position: Position, taken: Iterable[Written]) -> Position:
    """The position after ``taken``, in which each producer's objects are consecutive."""
    following, newest = dict(position.following), 0
    for each in taken:
        following[each.producer] = max(each.number + 1, following.get(each.producer, 0))
        newest = max(newest, each.at)
    if not newest:
        return position
    before = datetime.fromtimestamp(newest / 1000 - _HOUR_SECONDS, UTC).strftime(_HOUR)
    return Position(hour=max(position.hour, before), following=following)


def refuse_unknown(cluster: Cluster) -> None:
    """Raise :class:`RecordsUnavailableError` if no store can have this address, without asking any."""
    scheme, separator, _ = cluster.servers.partition("://")
    if separator and scheme.lower() not in _MAY_CONNECT:
        try:
            ArchiveFiles(cluster.servers)
        except ArchiveError as error:
            text = f"--kafka: {named(cluster.servers, _one_line(error))} (Kafka's address has no scheme: HOST:PORT)"
            raise RecordsUnavailableError(text) from None


def make_topics(cluster: Cluster) -> None:
    """Check that the store exists, or create it. Raises :class:`RecordsUnavailableError`."""
    try:
        store = ArchiveFiles(cluster.servers)
        store.filesystem.create_dir(store.root, recursive=True)
    except (OSError, ArchiveError) as error:
        raise RecordsUnavailableError(named(cluster.servers, _one_line(error))) from None


class RecordProducer:
    """Like :class:`detector.assembly.kafka.RecordProducer`; records within ``LINGER_SECONDS`` become one object."""

    def __init__(self, cluster: Cluster) -> None:
        """Start the writing thread."""
        self._cluster = cluster
        self._name = uuid4().hex[:12]
        self._numbers: dict[str, int] = defaultdict(int)
        self._pending: list[tuple[str, str, bytes, Callable[[str], None]]] = []
        self._lock = threading.Lock()
        self._has_records, self._closed = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="stilltrue-objects", daemon=True)
        self._thread.start()

    async def put(self, topic: str, key: str, value: bytes) -> None:
        """Write a record and wait until its object exists. Raises :class:`RecordsUnavailableError`."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def settle(error: str) -> None:
            if future.done():
                return
            if error:
                future.set_exception(RecordsUnavailableError(named(self._cluster.servers, error)))
            else:
                future.set_result(None)

        def written(error: str) -> None:
            with suppress(RuntimeError):  # the loop is closed, so no task waits
                loop.call_soon_threadsafe(settle, error)

        with self._lock:
            self._pending.append((topic, key, value, written))
        self._has_records.set()
        try:
            await asyncio.wait_for(future, DELIVERY_SECONDS_MAX)
        except TimeoutError:
            text = f"{self._cluster.servers}: nothing was written within {DELIVERY_SECONDS_MAX:g} s"
            raise RecordsUnavailableError(text) from None

    def check(self) -> None:
        """Check that the store answers. Raises :class:`RecordsUnavailableError`."""
        make_topics(self._cluster)

    def _run(self) -> None:
        while not self._closed.is_set():
            self._has_records.wait()
            self._closed.wait(LINGER_SECONDS)
            self._has_records.clear()
            while self._flush():
                pass

    def _flush(self) -> bool:
        """Write the oldest pending records, all of one topic; returns whether there were any."""
        with self._lock:
            if not self._pending:
                return False
            topic, size, count = self._pending[0][0], 0, 0
            for own, _, value, _ in self._pending:
                if own != topic or (count and size + len(value) > BYTES_AT_ONCE):
                    break
                size, count = size + len(value), count + 1
            taken, self._pending = self._pending[:count], self._pending[count:]
        error = ""
        try:
            Topic(self._cluster, topic).write(self._name, self._numbers[topic], [(key, value) for _, key, value, _ in taken])
            self._numbers[topic] += 1
        except (OSError, ArchiveError) as failed:
            error = _one_line(failed) or type(failed).__name__
            self._name, self._numbers = uuid4().hex[:12], defaultdict(int)  # rule 1: it may exist nevertheless
        for *_, written in taken:
            written(error)
        return True

    def close(self) -> None:
        """Write pending records and stop the thread."""
        self._closed.set()
        self._has_records.set()
        self._thread.join()
        while self._flush():
            pass


class RecordConsumer:
    """Like :class:`detector.assembly.kafka.RecordConsumer`: reads a topic from its present end on, on a separate thread."""

    def __init__(self, cluster: Cluster, topic: str, take: Callable[[bytes], None]) -> None:
        """``take`` is called on the event loop with each record's value. Raises :class:`RecordsUnavailableError`."""
        self._loop = asyncio.get_running_loop()
        self._take = take
        self._topic = Topic(cluster, topic)
        listed = self._topic.listed()
        self._position = advanced(beginning(listed), listed)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._read, name="stilltrue-results", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._closed.wait(POLL_SECONDS):
            try:
                new = fresh(self._position, self._topic.listed(self._position.hour), 0.0)
                for each in new:
                    for value in self._topic.read(each.path).column("value").to_pylist():
                        with suppress(RuntimeError):
                            self._loop.call_soon_threadsafe(partial(self._take, value))
                    self._position = advanced(self._position, [each])
            except (RecordsUnavailableError, OSError):
                continue  # retried until the store is back

    def close(self) -> None:
        """Stop reading."""
        self._closed.set()
        self._thread.join()


def _entries(store: ArchiveFiles, folder: str, kind: fs.FileType) -> list[str]:
    selector = fs.FileSelector(folder, allow_not_found=True)
    return [each.base_name for each in store.filesystem.get_file_info(selector) if each.type == kind]


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
