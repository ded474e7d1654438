"""A scene: which services there are, what each of their methods does step by step, and who calls them how hard."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Be busy for so many seconds (times a little jitter)."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Call ``service.Method`` and wait for the reply; ``timeout`` in seconds, a deadline exceeded is taken in its stride."""

    method: str
    timeout: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class All:
    """Call several methods at once and wait for all of their replies."""

    methods: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class First:
    """Call several methods at once, wait for the first reply, cancel the others (a hedged call)."""

    methods: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Locked:
    """Hold the process's lock ``name`` (of ``permits`` shares) during ``steps``."""

    name: str
    steps: tuple[Step, ...]
    permits: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """Wait until the director opens the gate ``name`` of this process: makes the order of a scene certain.

    It is no wait that anybody could know of, so the party counts as active meanwhile.
    """

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Hand on ``copies`` of the message, with one unit of strength less, to random others; wait for none of them."""

    methods: tuple[str, ...]
    copies: int = 2


Step = Work | Call | All | First | Locked | Gate | Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One process that serves ``methods``: with a pool of ``workers`` threads, or (``workers`` 0) on asyncio."""

    methods: Mapping[str, tuple[Step, ...]]
    workers: int = 4
    reactive: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One process that calls: each of ``threads`` threads goes on calling ``method``, ``pause`` seconds in between."""

    method: str
    threads: int = 2
    pause: float = 0.02
    timeout: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """All the processes of one scene, by name."""

    services: Mapping[str, Service]
    loads: Mapping[str, Load] = field(default_factory=dict)
