"""Reads and writes records in Kafka. A record counts as written once all replicas have acknowledged it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from detector.assembly.cluster import REPORTS, RESULTS, Cluster, RecordsUnavailableError

PARTITIONS = 8
_POLL_SECONDS = 0.1
_METADATA_SECONDS_MAX = 10.0
_SILENT = frozenset({"_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_RESOLVE"})
"""The names of librdkafka's errors that mean that nobody answered."""
CHECK_SECONDS_MAX = 3.0
"""How long a check waits for an answer; it must also be over soon when the process ends."""
_DELIVERY_SECONDS_MAX = 3.0
"""How long to wait for a record's acknowledgement; a report that takes longer than its snapshot is useless."""


def make_topics(cluster: Cluster) -> None:
    """Create the topics that do not exist yet. Raises :class:`RecordsUnavailableError`."""
    admin = AdminClient(cluster.settings())
    config = {"max.message.bytes": str(cluster.message_bytes_max), "message.timestamp.type": "LogAppendTime"}
    try:
        existing = admin.list_topics(timeout=_METADATA_SECONDS_MAX).topics
        wanted = [cluster.topic(name) for name in (REPORTS, RESULTS)]
        new = [NewTopic(name, num_partitions=PARTITIONS, config=config) for name in wanted if name not in existing]
        for made in admin.create_topics(new).values() if new else ():
            made.result(_METADATA_SECONDS_MAX)
    except KafkaException as error:
        reason = error.args[0]
        if reason.code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise RecordsUnavailableError(_why(cluster, reason)) from None


def _why(cluster: Cluster, error: KafkaError) -> str:
    """The error in one line; if Kafka did not answer at all, with what to check."""
    if error.name() in _SILENT:
        said = f"no Kafka answers at {cluster.servers} ({error.str()})"
        if ":" not in cluster.servers:
            return f"{said}: write HOST:PORT; or, if it is a directory, ./{cluster.servers}"
        return f"{said}: is it running, and does --kafka-config say how to log in?"
    return f"Kafka at {cluster.servers}: {error.str()}"


def partitions(consumer: Consumer, topic: str) -> list[int]:
    """The numbers of a topic's partitions. Raises ``KafkaException``."""
    found = consumer.list_topics(topic, timeout=_METADATA_SECONDS_MAX).topics[topic]
    if found.error is not None:
        raise KafkaException(found.error)
    return sorted(found.partitions)


def bounds(consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
    """The first available offset of a partition and its end; waits for a partition that has no leader yet."""
    until = time.monotonic() + _METADATA_SECONDS_MAX
    while True:
        try:
            found = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_METADATA_SECONDS_MAX)
        except KafkaException:
            if time.monotonic() >= until:
                raise
            time.sleep(_POLL_SECONDS)
        else:
            if found is not None:
                return int(found[0]), int(found[1])
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001 - there is no public name


class RecordProducer:
    """Writes records. Use it on the event loop; a separate thread polls Kafka."""

    def __init__(self, cluster: Cluster) -> None:
        """Raises :class:`RecordsUnavailableError` for invalid properties."""
        try:
            self._producer = Producer(
                cluster.settings(
                    **{
                        "enable.idempotence": True,
                        "linger.ms": 2,
                        "compression.type": "zstd",
                        "message.max.bytes": cluster.message_bytes_max,
                        "message.timeout.ms": int(1000 * _DELIVERY_SECONDS_MAX),
                    }
                )
            )
        except (KafkaException, ValueError) as error:
            raise RecordsUnavailableError(f"Kafka at {cluster.servers}: {error}") from None
        self._cluster = cluster
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="stilltrue-kafka", daemon=True)
        self._thread.start()

    async def put(self, topic: str, key: str, value: bytes) -> None:
        """Write a record and wait for its acknowledgement. Raises :class:`RecordsUnavailableError`."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def settle(error: KafkaError | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(RecordsUnavailableError(f"Kafka at {self._cluster.servers}: {error.str()}"))

        def delivered(error: KafkaError | None, _: Message) -> None:
            with suppress(RuntimeError):  # the loop is closed, so no task waits
                loop.call_soon_threadsafe(settle, error)

        try:
            self._producer.produce(self._cluster.topic(topic), key=key, value=value, on_delivery=delivered)
        except (BufferError, KafkaException) as error:
            raise RecordsUnavailableError(f"Kafka at {self._cluster.servers}: {error}") from None
        await future

    def check(self) -> None:
        """Ask Kafka for its brokers, for at most ``CHECK_SECONDS_MAX``. Raises :class:`RecordsUnavailableError`."""
        try:
            self._producer.list_topics(self._cluster.topic(REPORTS), timeout=CHECK_SECONDS_MAX)
        except KafkaException as error:
            raise RecordsUnavailableError(_why(self._cluster, error.args[0])) from None

    def _poll(self) -> None:
        while not self._closed.is_set():
            self._producer.poll(_POLL_SECONDS)

    def close(self) -> None:
        """Flush pending records and stop the thread."""
        self._producer.flush(_DELIVERY_SECONDS_MAX)
        self._closed.set()
        self._thread.join()


class RecordConsumer:
    """Reads all partitions of a topic from their present end on, on a separate thread."""

    def __init__(self, cluster: Cluster, topic: str, take: Callable[[bytes], None]) -> None:
        """``take`` is called on the event loop with each record's value. Raises :class:`RecordsUnavailableError`."""
        self._loop = asyncio.get_running_loop()
        self._take = take
        self._closed = threading.Event()
        try:
            self._consumer = Consumer(
                cluster.settings(
                    **{
                        "group.id": cluster.topic("coordinator"),
                        "enable.auto.commit": False,
                        "fetch.wait.max.ms": 20,
                        "fetch.message.max.bytes": cluster.message_bytes_max,
                        "fetch.max.bytes": 2 * cluster.message_bytes_max,
                    }
                )
            )
            name = cluster.topic(topic)
            numbers = partitions(self._consumer, name)
            self._consumer.assign([TopicPartition(name, each, bounds(self._consumer, name, each)[1]) for each in numbers])
        except (KafkaException, ValueError) as error:
            raise RecordsUnavailableError(f"Kafka at {cluster.servers}: {error}") from None
        self._thread = threading.Thread(target=self._read, name="stilltrue-results", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._closed.is_set():
            message = self._consumer.poll(_POLL_SECONDS)
            value = None if message is None or message.error() else message.value()
            if value is not None:
                with suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(partial(self._take, value))

    def close(self) -> None:
        """Stop reading and disconnect."""
        self._closed.set()
        self._thread.join()
        self._consumer.close()
