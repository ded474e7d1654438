"""What a Redis server's locks wait for, as one reading of their keys shows it. Pure: keys in, waits out.

Rules:

1. A lock of redis-py is a key whose value is the token of who has it. Who wants the lock waits for the key's party, and that
   for whoever has the token.
2. A key with a time to live ends by itself: a deadline.
3. As long as a key has the same value, it is the very same wait: a token is another each time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from detector.probe.reading import Numbers, Reading
from stilltrue.model import PartyName
from stilltrue.protocol.report import Hold, LocalWait, ResourceTarget
from stilltrue.runtime.seen.databases.redis_names import held_by_token, text_of, waited_for


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A key of a lock: its value, and the seconds that it has to live (None: for ever)."""

    name: bytes
    token: bytes
    seconds_left: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """An address of the server, as its clients see it."""

    host: str
    port: int


class Keys:
    """Turns keys into waits; the same wait keeps its number from one reading to the next."""

    def __init__(self, process: str, database: int) -> None:
        """``process`` is the probe's name, ``database`` the number of the database that it reads."""
        self._process = process
        self._database = database
        self._numbers = Numbers()

    def read(self, keys: Iterable[Key], addresses: Iterable[Address], network: str | None, now: float) -> Reading:
        """What these keys show, read ``now`` (epoch); ``network``: that of the server, if it is our own."""
        self._numbers.begin()
        known = tuple(addresses)
        waits: list[LocalWait] = []
        holds: dict[Hold, None] = {}
        for key in sorted(keys, key=lambda one: one.name):
            party = PartyName(f"{self._process}/lock-{text_of(key.name)}")
            number, since = self._numbers.of((key.name, key.token), now)
            waits.append(
                LocalWait(
                    waiter=party,
                    number=number,
                    among=(ResourceTarget(resource=held_by_token(key.token)),),
                    deadline=None if key.seconds_left is None else now + key.seconds_left,
                    since=since,
                    uncoloured=True,
                    what="who has its token",
                )
            )
            for one in known:
                resource = waited_for(key.name, self._database, one.host, one.port, network)
                if resource is not None:
                    holds[Hold(party=party, resource=resource)] = None
        return Reading(waits=tuple(waits), holds=tuple(holds), doubts={})
