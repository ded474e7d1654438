"""The true state of a world: processes, parties, calls and locks, independent of the recorders."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from detector.simulator.plans.plan import Method, Op, Service
from stilltrue.model import CallNumber, PartyName, ProcessId, ProcessName, WaitNumber
from stilltrue.protocol.books.ledger import ChannelRecord, ClientCall, ServerCall
from stilltrue.protocol.recorder import Recorder
from stilltrue.protocol.stamp import Stamp
from stilltrue.protocol.step import Step

CallKey = tuple[ProcessName, int, CallNumber]
"""The caller, its incarnation and the call's number, which together are globally unique."""


@dataclass(slots=True, eq=False, repr=False)
class Lane:
    """One direction of a stream: the number of items sent, arrived (``there``) and taken; ``closed``: no more will be sent."""

    sent: int = 0
    there: int = 0
    taken: int = 0
    closed: bool = False


@dataclass(slots=True, eq=False, repr=False)
class SimCall:
    """One call from when it is sent: its copies in transit, the parties that serve it, and what is known of it."""

    key: CallKey
    made: ClientCall
    stamp: Stamp | None
    party: Party
    service: str
    method: str
    deadline: float | None
    token: int
    token_back: int = 0
    """The token in its reply, which its maker has not taken yet."""
    step: Step | None = None
    """The open step of its maker that the call belongs to (protocol rule 7)."""
    requests: int = 0
    replies: int = 0
    copies_there: int = 0
    copies_back: int = 0
    served: list[Party] = field(default_factory=list)
    zombies: list[Party] = field(default_factory=list)
    """Handlers that continue although their connection is lost; their replies cannot be received."""
    queued: list[tuple[Process, str]] = field(default_factory=list)
    over: bool = False
    """Whether its outcome is known at the caller, or the caller has abandoned it."""
    broken: bool = False
    """Whether it was lost with a server; its caller will be notified."""
    answered: list[ProcessId] = field(default_factory=list)
    """The servers that have finished a copy of it, whether or not the reply was received."""
    streams: bool = False
    up: Lane = field(default_factory=Lane)
    down: Lane = field(default_factory=Lane)

    @property
    def depth(self) -> int:
        """How deep the calls of its handler may still nest."""
        return self.party.depth - 1

    @property
    def name(self) -> str:
        """The call's name in stories."""
        return f"{self.key[0]}'s call {self.key[2]}" + (f" (run {self.key[1]})" if self.key[1] > 1 else "")


@dataclass(slots=True, eq=False, repr=False)
class Lock:
    """A lock or semaphore with the holders of its shares and its queue."""

    name: str
    capacity: int
    fleet: bool
    holders: list[Party] = field(default_factory=list)
    bare: list[Party] = field(default_factory=list)
    """The holders that acquired it bare: any party may release it."""
    queue: deque[Party] = field(default_factory=deque)


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Block:
    """What a party is blocked on: ``needs`` of ``calls``, a lock, a ``task``, or (with a ``lane``) its one call's next item.

    ``bare``: the lock will be acquired bare. ``passes_on``: cancelling the party also cancels the task. ``number``: of a wait
    that is observed rather than recorded.
    """

    calls: tuple[SimCall, ...] = ()
    needs: int = 0
    lock: Lock | None = None
    lane: Lane | None = None
    deadline: float | None = None
    bare: bool = False
    task: Party | None = None
    passes_on: bool = False
    number: WaitNumber = WaitNumber(0)


@dataclass(slots=True, eq=False, repr=False)
class Party:
    """A task or a handler in progress. ``waits`` are the numbers of the waits that its recorder has recorded."""

    name: PartyName
    process: Process
    body: tuple[Op, ...]
    depth: int
    at: int = 0
    step: int = 0
    """The step within the operation ``body[at]``."""
    sent: list[SimCall] = field(default_factory=list)
    block: Block | None = None
    locks: list[Lock] = field(default_factory=list)
    waits: list[WaitNumber] = field(default_factory=list)
    streams: list[SimCall] = field(default_factory=list)
    """The streams that it has opened but not finished."""
    call: SimCall | None = None
    handle: ServerCall | None = None
    method: Method | None = None
    pool: str = ""
    took: bool = False
    """Whether it has taken the facts of its request."""
    done: bool = False
    spawned: bool = False
    """Whether another party started it."""
    newest: Party | None = None
    """The task that it started last."""
    aborted: bool = False
    hung: bool = False
    """Whether its call's connection is lost."""
    noticed: bool = False
    """Whether its process knows that."""

    def next(self) -> None:
        """Advance to the next operation."""
        self.at += 1
        self.step = 0
        self.sent.clear()


class Queued(NamedTuple):
    """A request that waits for a worker."""

    call: SimCall
    handle: ServerCall


@dataclass(slots=True, eq=False, repr=False)
class Process:
    """One process with its real recorder.

    ``services`` by name, its own first. If not ``instrumented``, the recorder only names its parties. ``ahead``: how far its
    clock is ahead of the detector's.
    """

    id: ProcessId
    services: Mapping[str, Service]
    recorder: Recorder
    tokens: int
    instrumented: bool = field(default=True, kw_only=True)
    gateway: bool = field(default=False, kw_only=True)
    ahead: float = field(default=0.0, kw_only=True)
    joined: int = 0
    """Number of waits for tasks so far."""
    spawned: int = 0
    """Number of tasks started by its parties."""
    sent: int = 0
    received: int = 0
    """Requests sent and received, in a plan that counts them."""
    up: bool = True
    stalled: bool = False
    idle: bool = False
    parties: dict[PartyName, Party] = field(default_factory=dict)
    calls: dict[CallNumber, SimCall] = field(default_factory=dict)
    channels: dict[str, ChannelRecord] = field(default_factory=dict)
    name: ProcessName = field(init=False)
    sizes: dict[str, int] = field(init=False)
    queues: dict[str, deque[Queued]] = field(init=False)
    busy: dict[str, list[Party]] = field(init=False)

    def __post_init__(self) -> None:
        self.name = self.id.instance
        self.sizes = {pool: size for service in self.services.values() for pool, size in service.pools.items()}
        self.queues = {pool: deque() for pool in self.sizes}
        self.busy = {pool: [] for pool in self.sizes}

    def has_worker(self, pool: str) -> bool:
        """Whether a call behind ``pool`` could start now."""
        return not pool or len(self.busy[pool]) < self.sizes[pool]

    def method(self, route: Sequence[str], name: str) -> Method:
        """The method ``name`` of the first of its services behind an address (``route``)."""
        return next(self.services[service].methods[name] for service in route if service in self.services)

    def at(self, moment: float) -> float:
        """``moment`` by the process's own clock."""
        return moment + self.ahead

    def until(self, deadline: float | None) -> float | None:
        """``deadline`` by the process's own clock."""
        return None if deadline is None else deadline + self.ahead
