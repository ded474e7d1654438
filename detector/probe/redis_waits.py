"""Derives the waits for a Redis server's locks from one reading of their keys. Pure: keys in, waits out.

Rules:

1. A redis-py lock is a key whose value is its holder's token. A party that wants the lock waits for the key's party, which
   waits for the party that has the token.
2. A key with a time to live expires by itself, so its wait has a deadline.
3. As long as a key has the same value, it is the same wait: each acquisition has a new token.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from detector.probe.reading import Numbers, Reading
from stilltrue.model import LOCK, PartyName
from stilltrue.protocol.report import Hold, LocalWait, ResourceTarget
from stilltrue.runtime.waits.databases.redis_names import lock_resource, text_of, token_resource


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A lock's key: its value, and its time to live in seconds (None: for ever)."""

    name: bytes
    token: bytes
    seconds_left: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """An address of the server, as its clients see it."""

    host: str
    port: int


class Keys:
    """Converts keys to waits; a wait keeps its number across readings."""

    def __init__(self, process: str, database: int) -> None:
        """``process``: the probe's name; ``database``: the number of the database that it reads."""
        self._process = process
        self._database = database
        self._numbers = Numbers()

    def read(self, keys: Iterable[Key], addresses: Iterable[Address], network: str | None, now: float) -> Reading:
        """Convert ``keys``, read ``now`` (epoch), to waits and holds; ``network``: the server's, if it is our own."""
        self._numbers.begin()
        known = tuple(addresses)
        waits: list[LocalWait] = []
        holds: dict[Hold, None] = {}
        for key in sorted(keys, key=lambda one: one.name):
            party = PartyName(f"{self._process}/{LOCK}{text_of(key.name)}")
            number, since = self._numbers.of((key.name, key.token), now)
            waits.append(
                LocalWait(
                    waiter=party,
                    number=number,
                    among=(ResourceTarget(resource=token_resource(key.token)),),
                    deadline=None if key.seconds_left is None else now + key.seconds_left,
                    since=since,
                    uncoloured=True,
                    what="the holder of its token",
                )
            )
            for one in known:
                resource = lock_resource(key.name, self._database, one.host, one.port, network)
                if resource is not None:
                    holds[Hold(party=party, resource=resource)] = None
        return Reading(waits=tuple(waits), holds=tuple(holds), doubts={})
