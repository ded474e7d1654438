"""The waits derived from the keys of a Redis server's locks, and the names on which both ends agree."""

from __future__ import annotations

import pytest

from detector.probe.reading import Reading
from detector.probe.redis_waits import Address, Key, Keys
from stilltrue.model import PartyName
from stilltrue.protocol.report import Hold, ResourceTarget
from stilltrue.runtime.waits.databases.redis_names import lock_resource, text_of, token_resource

SERVER = Address(host="10.0.0.7", port=6379)
PARTY = PartyName("cache/lock-lock:a")


def read(*keys: Key, now: float = 100.0, of: Keys | None = None, addresses: tuple[Address, ...] = (SERVER,)) -> Reading:
    return (of or Keys("cache", 2)).read(keys, addresses, "here", now)


def key(token: bytes = b"one", name: bytes = b"lock:a", seconds_left: float | None = None) -> Key:
    return Key(name=name, token=token, seconds_left=seconds_left)


def test_a_lock_waits_for_its_tokens_owner_and_its_waiters_for_the_lock() -> None:
    reading = read(key())
    (wait,) = reading.waits
    assert (wait.waiter, wait.deadline, wait.uncoloured) == (PARTY, None, True)
    assert wait.among == (ResourceTarget(resource=token_resource(b"one")),)
    wanted = lock_resource(b"lock:a", 2, "10.0.0.7", 6379, None)
    assert wanted is not None
    assert reading.holds == (Hold(party=PARTY, resource=wanted),)


def test_a_time_to_live_is_a_deadline() -> None:
    assert [wait.deadline for wait in read(key(seconds_left=7.5)).waits] == [107.5]


def test_the_same_token_is_the_same_wait_and_another_is_not() -> None:
    keys = Keys("cache", 2)
    first, again, other, back = (
        read(key(token), of=keys, now=now).waits[0] for token, now in [(b"one", 1), (b"one", 2), (b"two", 3), (b"one", 4)]
    )
    assert (first.number, first.since) == (again.number, again.since)
    assert len({first.number, other.number, back.number}) == 3


def test_each_address_of_the_server_is_waited_for() -> None:
    addresses = (SERVER, Address(host="127.0.0.1", port=6379))
    assert len(read(key(), addresses=addresses).holds) == 2


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((b"a", 0, "10.0.0.7", 6379, None), (b"b", 0, "10.0.0.7", 6379, None)),
        ((b"a", 0, "10.0.0.7", 6379, None), (b"a", 1, "10.0.0.7", 6379, None)),
        ((b"a", 0, "10.0.0.7", 6379, None), (b"a", 0, "10.0.0.8", 6379, None)),
        ((b"a", 0, "10.0.0.7", 6379, None), (b"a", 0, "10.0.0.7", 6380, None)),
        ((b"a", 0, "127.0.0.1", 6379, "here"), (b"a", 0, "127.0.0.1", 6379, "there")),
        ((b"a\xff", 0, "10.0.0.7", 6379, None), (b"a\xfe", 0, "10.0.0.7", 6379, None)),
    ],
)
def test_different_locks_have_different_names(
    first: tuple[bytes, int, str, int, str | None], second: tuple[bytes, int, str, int, str | None]
) -> None:
    assert lock_resource(*first) != lock_resource(*second)


@pytest.mark.parametrize(
    ("address", "port", "network"), [("127.0.0.1", 6379, None), ("cache.shop", 6379, "here"), ("10.0.0.7", 0, None)]
)
def test_a_lock_at_an_ambiguous_address_has_no_name(address: str, port: int, network: str | None) -> None:
    assert lock_resource(b"a", 0, address, port, network) is None


def test_ipv4_mapped_addresses_are_normalised() -> None:
    assert lock_resource(b"a", 0, "::ffff:10.0.0.7", 6379, None) == lock_resource(b"a", 0, "10.0.0.7", 6379, None)


def test_tokens_are_not_reported_and_names_are_sanitised() -> None:
    assert "secret" not in token_resource(b"secret")
    assert text_of(b"lock/\n\xff;" + b"x" * 200) == "lock????" + "x" * 52
