"""The description of a scene: services, the steps of their methods, and the load on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Be busy for this many seconds (with a little jitter)."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Call ``service.Method`` and wait for the reply; ``timeout`` is in seconds, and exceeding it is not an error."""

    method: str
    timeout: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class All:
    """Call several methods at once and wait for all replies."""

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
    """Wait until the harness opens the gate ``name`` of this process, which makes the order of a scene deterministic.

    The agent cannot see this wait, so the party counts as active meanwhile.
    """

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Forward ``copies`` of the message, with its strength reduced by one, to random others, without waiting."""

    methods: tuple[str, ...]
    copies: int = 2


Step = Work | Call | All | First | Locked | Gate | Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A server process: ``methods`` served by a pool of ``workers`` threads or, with 0, on asyncio."""

    methods: Mapping[str, tuple[Step, ...]]
    workers: int = 4
    reactive: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A client process: each of ``threads`` threads calls ``method`` repeatedly, with ``pause`` seconds in between."""

    method: str
    threads: int = 2
    pause: float = 0.02
    timeout: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """All the processes of one scene, by name."""

    services: Mapping[str, Service]
    loads: Mapping[str, Load] = field(default_factory=dict)
    programs: Mapping[str, str] = field(default_factory=dict)
    """Classes of ordinary programs, as ``module:Class``, created with the process's name and port."""
    restarting: tuple[str, ...] = ()
    """The programs to restart in turn, repeatedly, on their ports."""
