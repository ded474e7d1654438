"""One reading of a server: what waits there for what, and the numbers by which a wait is the same in the next reading."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from stilltrue.model import PartyName, WaitNumber
from stilltrue.protocol.report import OBSERVED_MIN, Hold, LocalWait


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The waits of one server at one moment, what its parties hold for others, and why some waits may end otherwise."""

    waits: tuple[LocalWait, ...] = ()
    holds: tuple[Hold, ...] = ()
    doubts: Mapping[PartyName, str]


class ServerDownError(Exception):
    """The server does not answer; one line."""


class UnusableServerError(Exception):
    """The server cannot be read, and will not be; one line."""


class Source(Protocol):
    """A server that a probe reads."""

    @property
    def blind(self) -> tuple[str, ...]:
        """What cannot be seen, in words."""
        ...

    def reading(self, now: float) -> Reading:
        """A reading made ``now`` (epoch). Raises :class:`ServerDownError`."""
        ...

    def close(self) -> None:
        """End the connection; the next reading makes another."""
        ...


class Numbers:
    """Numbers of waits by what makes each the very same wait, and since when (epoch) each is known."""

    def __init__(self) -> None:
        """None is known yet."""
        self._before: dict[tuple[object, ...], tuple[WaitNumber, float]] = {}
        self._known: dict[tuple[object, ...], tuple[WaitNumber, float]] = {}
        self._next: int = OBSERVED_MIN

    def begin(self) -> None:
        """A new reading: what is not asked for in it is forgotten."""
        self._before, self._known = self._known, {}

    def of(self, key: tuple[object, ...], now: float) -> tuple[WaitNumber, float]:
        """The number of a wait, and since when it is known."""
        known = self._before.get(key)
        if known is None:
            known = WaitNumber(self._next), now
            self._next += 1
        self._known[key] = known
        return known
