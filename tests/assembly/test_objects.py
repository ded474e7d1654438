"""Records as objects: each is read once and in order; a loss is reported, a late object is waited for."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from detector.assembly import objects
from detector.assembly.cluster import REPORTS, RESULTS, Cluster, RecordsLostError, RecordsUnavailableError, client
from detector.assembly.objects import (
    Position,
    RecordConsumer,
    RecordProducer,
    Topic,
    Written,
    advanced,
    beginning,
    fresh,
    make_topics,
    position_of,
)
from tests.synthetic.object_storage import BUCKET, object_storage

NOW = 1_800_000_000.0


@pytest.fixture(params=["disk", "store"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    if request.param == "disk":
        yield Cluster(str(tmp_path / "records"))
        return
    with object_storage():
        yield Cluster(f"s3://{BUCKET}/records")


def written(producer: str, number: int, at: float = NOW) -> Written:
    return Written(at=int(1000 * at), producer=producer, number=number, count=2, path=f"{producer}-{number}")


def test_an_address_with_a_slash_is_an_object_store() -> None:
    assert client(Cluster("s3://bucket/records")) is objects
    assert client(Cluster("/var/records")) is objects
    assert client(Cluster("kafka:9092,other:9092")) is not objects


def test_without_kafkas_library_a_name_that_may_be_a_directory_is_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    monkeypatch.delitem(sys.modules, "detector.assembly.kafka", raising=False)
    with pytest.raises(RecordsUnavailableError, match=r"\[kafka\]' \(or is 'records' a directory\? .* \./records\)$"):
        client(Cluster("records"))
    with pytest.raises(RecordsUnavailableError, match=r"\[kafka\]'$"):
        client(Cluster("kafka:9092"))


@pytest.mark.parametrize("url", ["http://kafka:9092", "SASL_SSL://kafka:9092", "kafka://kafka:9092/"])
def test_kafkas_address_as_a_url_is_no_object_store(url: str) -> None:
    with pytest.raises(RecordsUnavailableError, match=r"is a URL, not HOST:PORT: write kafka:9092$"):
        client(Cluster(url))


def test_an_address_that_no_store_can_have_is_refused_before_anything_is_written() -> None:
    with pytest.raises(RecordsUnavailableError, match=r"^--kafka: .* nosuch://kafka:9092 \(.* has no scheme: HOST:PORT\)$"):
        client(Cluster("nosuch://kafka:9092"))


async def test_each_reader_gets_every_written_record_once(cluster: Cluster) -> None:
    make_topics(cluster)
    one, other = RecordProducer(cluster), RecordProducer(cluster)
    await one.put(RESULTS, "shop/1", b"before anybody listens")
    came: list[bytes] = []
    consumer = RecordConsumer(cluster, RESULTS, came.append)
    wanted = [f"{number}".encode() for number in range(60)]
    for low in range(0, 60, 20):
        puts = [(one if number % 2 else other).put(RESULTS, "shop/2", wanted[number]) for number in range(low, low + 20)]
        await asyncio.gather(*puts)
    async with asyncio.timeout(30):
        while len(came) < len(wanted):
            await asyncio.sleep(0.02)
    await asyncio.to_thread(consumer.close)
    await asyncio.gather(*(asyncio.to_thread(each.close) for each in (one, other)))
    assert sorted(came) == sorted(wanted)
    assert [record for record in came if int(record) % 2] == wanted[1::2], "of each producer in order"
    topic = Topic(cluster, RESULTS)
    there = topic.listed()
    assert sum(each.count for each in there) == 61
    assert len(there) <= 8, "what comes within a moment is one object"
    assert fresh(beginning(there), there, time.time()) == there
    after = advanced(beginning(there), there)
    assert fresh(after, topic.listed(after.hour), time.time()) == []
    assert Topic(cluster, REPORTS).listed() == []


async def test_a_closing_producer_writes_its_pending_records(tmp_path: Path) -> None:
    cluster = Cluster(str(tmp_path))
    producer = RecordProducer(cluster)
    puts = [asyncio.create_task(producer.put(topic, "shop/1", b"x")) for topic in (REPORTS, RESULTS, REPORTS)]
    await asyncio.sleep(0)
    await asyncio.to_thread(producer.close)
    await asyncio.wait_for(asyncio.gather(*puts), 20)
    assert sum(each.count for each in Topic(cluster, REPORTS).listed()) == 2
    assert len(Topic(cluster, RESULTS).listed()) == 1


async def test_a_failed_write_is_reported_and_retried_under_another_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The object may exist nevertheless: the next one must not seem to follow a gap."""
    cluster = Cluster(str(tmp_path))
    producer = RecordProducer(cluster)
    await producer.put(REPORTS, "shop/1", b"first")

    def full(*_: object) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(objects, "write_atomically", full)
        with pytest.raises(RecordsUnavailableError, match="no space left on device"):
            await producer.put(REPORTS, "shop/2", b"second")
    await producer.put(REPORTS, "shop/3", b"third")
    await asyncio.to_thread(producer.close)
    there = Topic(cluster, REPORTS).listed()
    assert [each.number for each in there] == [0, 0]
    assert len({each.producer for each in there}) == 2
    assert len(fresh(Position(), there, time.time() + 3600)) == 2


def test_a_missing_bucket_is_an_error_in_one_line() -> None:
    with object_storage(), pytest.raises(RecordsUnavailableError, match="stilltrue-nowhere") as caught:
        make_topics(Cluster("s3://stilltrue-nowhere/records"))
    assert "\n" not in str(caught.value)


def test_an_object_listed_too_early_waits_and_a_removed_one_is_an_error() -> None:
    there = [written("a", 0), written("a", 2, NOW + 2), written("b", 7, NOW + 1)]
    position = Position(following={"a": 0, "b": 7})
    assert [(each.producer, each.number) for each in fresh(position, there, NOW + 3)] == [("a", 0), ("b", 7)]
    with pytest.raises(RecordsLostError, match="object 1 of a was removed"):
        fresh(position, there, NOW + 100)
    late = [*there, written("a", 1, NOW + 1)]
    assert [each.number for each in fresh(position, late, NOW + 100) if each.producer == "a"] == [0, 1, 2]


def test_a_new_producer_is_read_from_its_first_object() -> None:
    position = Position(following={"a": 3})
    assert fresh(position, [written("c", 1)], NOW) == []
    assert [each.number for each in fresh(position, [written("c", 1), written("c", 0)], NOW)] == [0, 1]
    assert beginning([written("c", 5), written("c", 4)]).following == {"c": 4}, "what was there before is not missed"


def test_a_position_survives_as_an_offset_that_looks_back_an_hour() -> None:
    position = advanced(Position(following={"a": 1}), [written("a", 1), written("b", 0)])
    assert position.following == {"a": 2, "b": 1}
    assert position_of(position.json()) == position
    assert position.hour == time.strftime("%Y%m%d%H", time.gmtime(NOW - 3600))
    assert advanced(position, []) == position
    assert advanced(position, [written("c", 0, NOW - 9e5)]).hour == position.hour, "it never goes back"


def test_a_store_that_cannot_be_opened_is_named_once() -> None:
    with pytest.raises(RecordsUnavailableError) as error:
        make_topics(Cluster("nosuch://x"))
    assert str(error.value) == "Unrecognized filesystem type in URI: nosuch://x"
