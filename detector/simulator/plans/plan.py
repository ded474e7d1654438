"""The types of a seeded world: the programs of its processes, the faults that may occur, and the order of messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from stilltrue.model import ProcessName


class Order(Enum):
    """The order in which the messages of one channel arrive."""

    ANY = "any"
    FIFO = "fifo"


class Fault(Enum):
    """The faults, each of which comes from outside the system, a bounded number of times."""

    LOSE_MARKER = "a marker is lost"
    LOSE_REPORT = "a report is lost"
    FAIL_CALL = "a call fails at its caller, which cannot tell whether it was received"
    RETRY = "a server answers with a failure, and the request is sent again under its number"
    STALL = "a process stops for a while"
    LOSE_CONNECTION = "a connection is lost: the server continues with the call, and the request is sent again"
    CRASH = "a process dies"
    DUPLICATE = "a report arrives twice"
    NEW_DETECTOR = "the detector restarts, and the processes reconnect"
    RESTART = "a dead process comes back as another incarnation"
    JOIN = "another instance of a service starts"
    LOSE_MEMBER = "a process cannot reach the detector for a while, but keeps running"
    LEAVE = "a process says goodbye, but keeps running"
    CURE = "an operator aborts the victims of a deadlock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Call each of ``targets`` (service, method) and go on when ``needs`` of them have answered; 0 means do not wait.

    ``deadline_seconds``: after which the caller abandons the calls. ``token``: the request carries one token, if there is one.
    """

    targets: tuple[tuple[str, str], ...]
    needs: int = 1
    deadline_seconds: float | None = None
    token: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquire:
    """Take a share of a lock, waiting if necessary. ``fleet``: the lock is kept outside the processes, uncoloured.

    ``bare``: any party may release it, not only its holder (a hand-over, a limiter that a callback releases).
    """

    resource: str
    fleet: bool = False
    deadline_seconds: float | None = None
    bare: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveBack:
    """Release a share of a lock that any party acquired without a ``with`` block."""

    resource: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """Wait for the end of a root task of this process, by its number; 0 means the newest task that this party has spawned.

    ``passes_on``: if the party is cancelled meanwhile, so is the task.
    """

    task: int
    passes_on: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawn:
    """Start another task of this process, which runs ``body``."""

    body: tuple[Op, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Close:
    """Close the process's channel to ``service``, which ends its calls there. Only a second look sees this way out."""

    service: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shut:
    """Stop the process's server: calls being served are cancelled, queued ones fail. Only a second look sees this way out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Cancel a root task of this process. ``deep``: only a second look sees this way out, a cut does not."""

    task: int
    deep: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Release this party's share of a lock, if it has one."""

    resource: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A step that affects no other process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """Begin a stream to ``target`` (service, method)."""

    target: tuple[str, str]
    deadline_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """Send an item to this party's own caller (``up``), or on the newest stream that it has opened."""

    up: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Take:
    """Take the next item, waiting if necessary, from this party's own caller (``up``), or on the newest stream."""

    up: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """Half-close the newest stream (no more items), and wait for its outcome."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """Cancel every outstanding call of this party."""


Op = Call | Acquire | Release | GiveBack | Work | Open | Put | Take | Finish | Cancel | Join | Stop | Spawn | Close | Shut


def flat(body: tuple[Op, ...]) -> tuple[Op, ...]:
    """The operations of a body, including those of the tasks that it spawns."""
    return tuple(inner for op in body for inner in ((op, *flat(op.body)) if isinstance(op, Spawn) else (op,)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """The body that a call of a method runs, and the pool it queues for (if empty, it starts on arrival).

    ``interruptible``: the handler is cancelled at the deadline of its call, or when its caller cancels. ``returns_token``: the
    reply carries a token back, if there is one. ``loses``: received requests are not counted, in a plan that counts them.
    """

    body: tuple[Op, ...] = ()
    pool: str = ""
    interruptible: bool = False
    returns_token: bool = False
    loses: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A service: its methods and the pools (name and number of workers) of each of its instances."""

    methods: Mapping[str, Method]
    pools: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much each recorder may remember; small limits make it forget."""

    callers_max: int = 10_000
    answered_max: int = 4_096
    doubts_max: int = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """The weight of each kind of step in a random run; a small weight means a long delay."""

    deliver: float = 1.0
    step: float = 1.0
    take: float = 1.0
    marker: float = 0.5
    report: float = 0.5
    expire: float = 0.2
    ask: float = 0.1
    fault: float = 0.05
    tick: float = 0.02
    hello: float = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A whole world before its first step.

    ``roots``: the tasks that processes run on their own; ``locks``: the capacities of locks with more than one share; ``asks``:
    the number of snapshots asked for; ``faults``: how often each fault may strike; ``spares``: the instances that may join;
    ``depth``: how deep calls nest; ``copies_max``: how often a request may be sent in total; ``hedged``: also while another
    copy is in transit; ``reruns``: root tasks run again when their process restarts.

    ``routes``: the services behind an address that is not a service's own name; ``also``: additional services that a process
    serves; ``uninstrumented``: processes without an agent; ``gateways``: those of them that pass a request's stamp on with
    their own calls; ``forgers``: those that put other processes' names on their calls; ``clocks``: how far a process's clock is
    ahead of the detector's; ``limits``: how much recorders remember.

    ``counted``: processes count the requests that they send and receive, all of phase 1; ``scope``: a service whose instances
    form a scope that is also evaluated by itself.
    """

    name: str
    seed: int
    services: Mapping[str, Service]
    instances: Mapping[ProcessName, str]
    roots: tuple[tuple[ProcessName, tuple[Op, ...]], ...] = ()
    tokens: Mapping[ProcessName, int] = field(default_factory=lambda: MappingProxyType({}))
    locks: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    faults: Mapping[Fault, int] = field(default_factory=lambda: MappingProxyType({}))
    spares: Mapping[ProcessName, str] = field(default_factory=lambda: MappingProxyType({}))
    order: Order = Order.ANY
    weights: Weights = Weights()
    asks: int = 4
    pending_max: int = 3
    depth: int = 3
    copies_max: int = 1
    hedged: bool = False
    reruns: bool = False
    routes: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    also: Mapping[ProcessName, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    uninstrumented: tuple[ProcessName, ...] = ()
    gateways: tuple[ProcessName, ...] = ()
    forgers: tuple[ProcessName, ...] = ()
    clocks: Mapping[ProcessName, float] = field(default_factory=lambda: MappingProxyType({}))
    limits: Limits = Limits()
    counted: bool = False
    scope: str = ""

    def route(self, address: str) -> tuple[str, ...]:
        """The services behind an address."""
        return self.routes.get(address, (address,))

    def bodies(self) -> list[tuple[Op, ...]]:
        """The bodies of all root tasks and methods."""
        methods = [method.body for service in self.services.values() for method in service.methods.values()]
        return [flat(body) for body in [body for _, body in self.roots] + methods]

    def has_tasks(self) -> bool:
        """Whether tasks wait for each other or stop each other."""
        return any(isinstance(op, Join | Stop) for body in self.bodies() for op in body)

    def has_jobs(self) -> bool:
        """Whether a task that is cancelled may cancel another that it awaits."""
        return any(isinstance(op, Join) and op.passes_on for body in self.bodies() for op in body)

    def has_deadlines(self) -> bool:
        """Whether any wait can end by time alone."""
        return any(getattr(op, "deadline_seconds", None) is not None for body in self.bodies() for op in body)
