"""One reading of a server: its waits, and the numbers that identify them across readings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from stilltrue.model import PartyName, WaitNumber
from stilltrue.protocol.report import OBSERVED_MIN, Hold, LocalWait


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A server's waits at one moment, what its parties hold, and why some waits may end otherwise."""

    waits: tuple[LocalWait, ...] = ()
    holds: tuple[Hold, ...] = ()
    doubts: Mapping[PartyName, str]


class ServerDownError(Exception):
    """The server does not answer; the message is one line."""


class UnusableServerError(Exception):
    """The server can never be read; the message is one line."""


class Source(Protocol):
    """A server that a probe reads."""

    @property
    def blind(self) -> tuple[str, ...]:
        """Descriptions of what it cannot see."""
        ...

    def reading(self, now: float) -> Reading:
        """Read the server ``now`` (epoch). Raises :class:`ServerDownError`."""
        ...

    def close(self) -> None:
        """Close the connection; the next reading opens a new one."""
        ...


class Numbers:
    """Assigns numbers to waits by their identity, and remembers since when (epoch) each is known."""

    def __init__(self) -> None:
        self._before: dict[tuple[object, ...], tuple[WaitNumber, float]] = {}
        self._known: dict[tuple[object, ...], tuple[WaitNumber, float]] = {}
        self._next: int = OBSERVED_MIN

    def begin(self) -> None:
        """Begin a reading; waits that do not occur in it are forgotten."""
        self._before, self._known = self._known, {}

    def of(self, key: tuple[object, ...], now: float) -> tuple[WaitNumber, float]:
        """The number of a wait, and when it was first seen."""
        known = self._before.get(key)
        if known is None:
            known = WaitNumber(self._next), now
            self._next += 1
        self._known[key] = known
        return known
