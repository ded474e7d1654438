"""What is said of a Kafka that does not answer, without one."""

from __future__ import annotations

import asyncio

import pytest

from detector.assembly.cluster import Cluster, RecordsUnavailableError

kafka = pytest.importorskip("detector.assembly.kafka")
SILENT = r"^no Kafka answers at 127\.0\.0\.1:1 \(.+\): is it running, and does --kafka-config say how to log in\?$"


def test_a_kafka_that_does_not_answer_is_named_with_what_to_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "_METADATA_SECONDS_MAX", 0.5)
    with pytest.raises(RecordsUnavailableError, match=SILENT):
        kafka.make_topics(Cluster("127.0.0.1:1"))


def test_a_directory_without_a_slash_is_recognized(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "_METADATA_SECONDS_MAX", 0.5)
    with pytest.raises(
        RecordsUnavailableError, match=r"^no Kafka answers at records \(.+\): write HOST:PORT; or, .*, \./records$"
    ):
        kafka.make_topics(Cluster("records"))


async def test_a_producer_that_is_checked_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "CHECK_SECONDS_MAX", 0.5)
    producer = kafka.RecordProducer(Cluster("127.0.0.1:1"))
    try:
        with pytest.raises(RecordsUnavailableError, match=SILENT):
            await asyncio.to_thread(producer.check)
    finally:
        await asyncio.to_thread(producer.close)
