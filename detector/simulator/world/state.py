"""The true state of a world: processes, parties, calls and locks, independent of the recorders."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from detector.simulator.plans.plan import Method, Op, Service
from stilltrue.model import CallNumber, PartyName, ProcessId, ProcessName, WaitNumber
from stilltrue.protocol.books.ledger import ChannelRecord, ClientCall, ServerCall
from stilltrue.protocol.recorder import Recorder
from stilltrue.protocol.stamp import Stamp
from stilltrue.protocol.step import Step

CallKey = tuple[ProcessName, int, CallNumber]
"""The caller, its incarnation and the call's number, which together are globally unique."""


class SimCall:
    """One call from when it is sent: its copies in transit, the parties that serve it, and what is known of it."""

    __slots__ = (
        "answered",
        "broken",
        "copies_back",
        "copies_there",
        "deadline",
        "depth",
        "down",
        "key",
        "made",
        "method",
        "over",
        "party",
        "queued",
        "replies",
        "requests",
        "served",
        "service",
        "stamp",
        "step",
        "streams",
        "token",
        "token_back",
        "up",
        "zombies",
    )

    def __init__(
        self,
        key: CallKey,
        made: ClientCall,
        stamp: Stamp | None,
        party: Party,
        service: str,
        method: str,
        deadline: float | None,
        token: int,
    ) -> None:
        self.key = key
        self.made = made
        self.stamp = stamp
        self.party = party
        self.service = service
        self.method = method
        self.deadline = deadline
        self.depth = party.depth - 1
        self.token = token
        self.token_back = 0
        """The token in its reply, which its maker has not taken yet."""
        self.step: Step | None = None
        """The open step of its maker that the call belongs to (rule 7)."""
        self.requests = 0
        self.replies = 0
        self.copies_there = 0
        self.copies_back = 0
        self.served: list[Party] = []
        self.zombies: list[Party] = []
        """Handlers that continue although their connection is lost; their replies cannot be received."""
        self.queued: list[tuple[Process, str]] = []
        self.over = False
        """Whether its outcome is known at the caller, or the caller has abandoned it."""
        self.broken = False
        """Whether it was lost with a server; its caller will be notified."""
        self.answered: list[ProcessId] = []
        """The servers that have finished a copy of it, whether or not the reply was received."""
        self.streams = False
        self.up = Lane()
        self.down = Lane()

    @property
    def name(self) -> str:
        """The call's name in stories."""
        return f"{self.key[0]}'s call {self.key[2]}" + (f" (run {self.key[1]})" if self.key[1] > 1 else "")


class Lane:
    """One direction of a stream: the number of items sent, arrived (``there``) and taken; ``closed``: no more will be sent."""

    __slots__ = ("closed", "sent", "taken", "there")

    def __init__(self) -> None:
        self.sent = 0
        self.there = 0
        self.taken = 0
        self.closed = False


class Lock:
    """A lock or semaphore with the holders of its shares and its queue."""

    __slots__ = ("bare", "capacity", "fleet", "holders", "name", "queue")

    def __init__(self, name: str, capacity: int, *, fleet: bool) -> None:
        self.name = name
        self.capacity = capacity
        self.fleet = fleet
        self.holders: list[Party] = []
        self.bare: list[Party] = []
        """The holders that acquired it bare: any party may release it."""
        self.queue: deque[Party] = deque()


class Block:
    """What a party is blocked on: ``needs`` of ``calls``, a lock, a ``task``, or (with a ``lane``) its one call's next item.

    ``bare``: the lock will be acquired bare. ``passes_on``: cancelling the party also cancels the task. ``number``: of a wait
    that is observed rather than recorded.
    """

    __slots__ = ("bare", "calls", "deadline", "lane", "lock", "needs", "number", "passes_on", "task")

    def __init__(
        self,
        *,
        calls: tuple[SimCall, ...] = (),
        needs: int = 0,
        lock: Lock | None = None,
        lane: Lane | None = None,
        deadline: float | None = None,
        bare: bool = False,
        task: Party | None = None,
        passes_on: bool = False,
        number: WaitNumber = WaitNumber(0),
    ) -> None:
        self.calls = calls
        self.needs = needs
        self.lock = lock
        self.lane = lane
        self.deadline = deadline
        self.bare = bare
        self.task = task
        self.passes_on = passes_on
        self.number = number


class Party:
    """A task or a handler in progress. ``waits`` are the numbers of the waits that its recorder has recorded."""

    __slots__ = (
        "aborted",
        "at",
        "block",
        "body",
        "call",
        "depth",
        "done",
        "handle",
        "hung",
        "locks",
        "method",
        "name",
        "newest",
        "noticed",
        "pool",
        "process",
        "sent",
        "spawned",
        "step",
        "streams",
        "took",
        "waits",
    )

    def __init__(self, name: PartyName, process: Process, body: tuple[Op, ...], depth: int) -> None:
        self.name = name
        self.process = process
        self.body = body
        self.depth = depth
        self.at = 0
        self.step = 0
        """The step within the operation ``body[at]``."""
        self.sent: list[SimCall] = []
        self.block: Block | None = None
        self.locks: list[Lock] = []
        self.waits: list[WaitNumber] = []
        self.streams: list[SimCall] = []
        """The streams that it has opened but not finished."""
        self.call: SimCall | None = None
        self.handle: ServerCall | None = None
        self.method: Method | None = None
        self.pool = ""
        self.took = False
        """Whether it has taken the facts of its request."""
        self.done = False
        self.spawned = False
        """Whether another party started it."""
        self.newest: Party | None = None
        """The task that it started last."""
        self.aborted = False
        self.hung = False
        """Whether its call's connection is lost."""
        self.noticed = False
        """Whether its process knows that."""

    def next(self) -> None:
        """Advance to the next operation."""
        self.at += 1
        self.step = 0
        self.sent.clear()


class Queued:
    """A request that waits for a worker."""

    __slots__ = ("call", "handle")

    def __init__(self, call: SimCall, handle: ServerCall) -> None:
        self.call = call
        self.handle = handle


class Process:
    """One process with its real recorder."""

    __slots__ = (
        "ahead",
        "busy",
        "calls",
        "channels",
        "gateway",
        "id",
        "idle",
        "instrumented",
        "joined",
        "name",
        "parties",
        "queues",
        "received",
        "recorder",
        "sent",
        "services",
        "sizes",
        "spawned",
        "stalled",
        "tokens",
        "up",
    )

    def __init__(
        self,
        identity: ProcessId,
        services: Mapping[str, Service],
        recorder: Recorder,
        tokens: int,
        *,
        instrumented: bool = True,
        gateway: bool = False,
        ahead: float = 0.0,
    ) -> None:
        """``services`` by name, its own first. If not ``instrumented``, the recorder only names its parties.

        ``ahead``: how far its clock is ahead of the detector's.
        """
        self.id = identity
        self.name = identity.instance
        self.services = services
        self.sizes = {pool: size for service in services.values() for pool, size in service.pools.items()}
        self.instrumented = instrumented
        self.joined = 0
        """Number of waits for tasks so far."""
        self.spawned = 0
        """Number of tasks started by its parties."""
        self.gateway = gateway
        self.ahead = ahead
        self.recorder = recorder
        self.tokens = tokens
        self.sent = 0
        self.received = 0
        """Requests sent and received, in a plan that counts them."""
        self.up = True
        self.stalled = False
        self.idle = False
        self.parties: dict[PartyName, Party] = {}
        self.calls: dict[CallNumber, SimCall] = {}
        self.channels: dict[str, ChannelRecord] = {}
        self.queues: dict[str, deque[Queued]] = {pool: deque() for pool in self.sizes}
        self.busy: dict[str, list[Party]] = {pool: [] for pool in self.sizes}

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
