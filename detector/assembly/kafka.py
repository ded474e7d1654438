"""Kafka's client, and the one door to it. Records are acknowledged by all replicas before anybody is told of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from confluent_kafka import (
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from detector.assembly.cluster import REPORTS, RESULTS, Cluster, KafkaUnavailableError

PARTITIONS = 8
_POLL_SECONDS = 0.1
_METADATA_SECONDS_MAX = 10.0
_DELIVERY_SECONDS_MAX = 3.0
"""How long a record waits for its acknowledgement; a report that waits longer than its snapshot is of no use."""


def make_topics(cluster: Cluster) -> None:
    """Create the topics that are not there yet. Raises :class:`KafkaUnavailableError`."""
    admin = AdminClient(cluster.settings())
    config = {"max.message.bytes": str(cluster.message_bytes_max)}
    try:
        there = admin.list_topics(timeout=_METADATA_SECONDS_MAX).topics
        wanted = [cluster.topic(name) for name in (REPORTS, RESULTS)]
        new = [NewTopic(name, num_partitions=PARTITIONS, config=config) for name in wanted if name not in there]
        for made in admin.create_topics(new).values() if new else ():
            made.result(_METADATA_SECONDS_MAX)
    except KafkaException as error:
        reason = error.args[0]
        if reason.code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise KafkaUnavailableError(f"Kafka at {cluster.servers}: {reason.str()}") from None


class RecordProducer:
    """Writes records. Call it on the event loop; a thread of its own waits for Kafka."""

    def __init__(self, cluster: Cluster) -> None:
        """Raises :class:`KafkaUnavailableError` for properties that cannot be used."""
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
            raise KafkaUnavailableError(f"Kafka at {cluster.servers}: {error}") from None
        self._cluster = cluster
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="stilltrue-kafka", daemon=True)
        self._thread.start()

    async def put(self, topic: str, key: str, value: bytes) -> None:
        """Write a record, and wait until Kafka has it. Raises :class:`KafkaUnavailableError`."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()

        def settle(error: KafkaError | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(KafkaUnavailableError(f"Kafka at {self._cluster.servers}: {error.str()}"))

        def delivered(error: KafkaError | None, _: Message) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(settle, error)

        try:
            self._producer.produce(self._cluster.topic(topic), key=key, value=value, on_delivery=delivered)
        except (BufferError, KafkaException) as error:
            raise KafkaUnavailableError(f"Kafka at {self._cluster.servers}: {error}") from None
        await future

    def _poll(self) -> None:
        while not self._over.is_set():
            self._producer.poll(_POLL_SECONDS)

    def close(self) -> None:
        """Let what is under way be written, and end."""
        self._producer.flush(_DELIVERY_SECONDS_MAX)
        self._over.set()
        self._thread.join()


class RecordConsumer:
    """Reads a topic from its present end on, all partitions, on a thread of its own."""

    def __init__(self, cluster: Cluster, topic: str, take: Callable[[bytes], None]) -> None:
        """``take`` is called on the event loop with each record's value. Raises :class:`KafkaUnavailableError`."""
        self._loop = asyncio.get_running_loop()
        self._take = take
        self._over = threading.Event()
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
            found = self._consumer.list_topics(name, timeout=_METADATA_SECONDS_MAX).topics[name]
            parts = [TopicPartition(name, number) for number in found.partitions]
            ends = [self._consumer.get_watermark_offsets(part, timeout=_METADATA_SECONDS_MAX) for part in parts]
        except (KafkaException, ValueError) as error:
            raise KafkaUnavailableError(f"Kafka at {cluster.servers}: {error}") from None
        for part, end in zip(parts, ends, strict=True):
            part.offset = OFFSET_END if end is None else end[1]
        self._consumer.assign(parts)
        self._thread = threading.Thread(target=self._read, name="stilltrue-results", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._over.is_set():
            message = self._consumer.poll(_POLL_SECONDS)
            value = None if message is None or message.error() else message.value()
            if value is not None:
                with suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(partial(self._take, value))

    def close(self) -> None:
        """End."""
        self._over.set()
        self._thread.join()
        self._consumer.close()
