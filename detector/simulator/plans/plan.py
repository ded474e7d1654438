"""The types of a seeded world: what its processes run, which faults may occur, how its channels order messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from stilltrue.model import ProcessName


class Order(Enum):
    """In which order the messages of one channel arrive."""

    ANY = "any"
    FIFO = "fifo"


class Fault(Enum):
    """What may go wrong; each comes from outside the system, a bounded number of times."""

    LOSE_MARKER = "a marker is lost"
    LOSE_REPORT = "a report is lost"
    FAIL_CALL = "a call fails at its caller, who cannot tell whether it was received"
    RETRY = "a server answers with a failure, and the request is sent once more under its number"
    STALL = "a process stops for a while"
    LOSE_CONNECTION = "a connection is lost: the server goes on with the call, and the request is sent once more"
    CRASH = "a process dies"
    DUPLICATE = "a report comes twice"
    NEW_DETECTOR = "the detector restarts; the processes dial it again"
    RESTART = "a dead process comes back as another incarnation"
    JOIN = "a further instance of a service starts"
    LOSE_MEMBER = "a process cannot reach the detector for a while, and goes on"
    LEAVE = "a process says goodbye, though it goes on"
    CURE = "an operator has the victims of a deadlock aborted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Call each of ``targets`` (service, method) and go on when ``needs`` of them have answered; 0: do not wait.

    ``deadline_seconds``: when the caller gives up. ``token``: the request takes one token along, if there is one.
    """

    targets: tuple[tuple[str, str], ...]
    needs: int = 1
    deadline_seconds: float | None = None
    token: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquire:
    """Take a share of a lock, waiting for it if need be. ``fleet``: the lock is kept outside the processes, uncoloured.

    ``bare``: its holder need not give it back (a hand-over, a limiter that a callback releases).
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
    """Wait for the end of a root task of the own process, by its number; 0: of the newest that this party has spawned.

    ``passes_on``: when the party is cancelled meanwhile, so is the task.
    """

    task: int
    passes_on: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawn:
    """Start a further task of the own process, which runs ``body``."""

    body: tuple[Op, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Close:
    """Close the process's channel to ``service``: its calls there end. That it may do so only a second look sees."""

    service: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shut:
    """Stop the process's server: what it serves is cancelled, what is queued fails. Only a second look sees that it may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Cancel a root task of the own process. ``deep``: that it could is not seen at a cut, only at a second look."""

    task: int
    deep: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Give back the share of a lock, if this party has one."""

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
    """Send an item: to this party's own caller (``up``), or on the newest stream that it has opened."""

    up: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Take:
    """Take the next item, waiting for it if need be: from this party's own caller (``up``), or on the newest stream."""

    up: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """Say on the newest stream that no more items come, and wait for its outcome."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """Give up every call that this party has made and that is not over."""


Op = Call | Acquire | Release | GiveBack | Work | Open | Put | Take | Finish | Cancel | Join | Stop | Spawn | Close | Shut


def flat(body: tuple[Op, ...]) -> tuple[Op, ...]:
    """The operations of a body, those of the tasks that it spawns among them."""
    return tuple(inner for op in body for inner in ((op, *flat(op.body)) if isinstance(op, Spawn) else (op,)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """What a call of a method does, and behind which pool it queues (none: it starts on arrival).

    ``interruptible``: at the deadline of its call, or when its caller gives up, the handler itself is cancelled.
    ``returns_token``: the reply takes a token back, if there is one. ``loses``: its requests are not counted, where others are.
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
    """How much each recorder may remember; small ones bite."""

    callers_max: int = 10_000
    answered_max: int = 4_096
    doubts_max: int = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """How readily each kind of step is chosen by a random run; a small number is a long delay."""

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

    ``roots`` are the tasks that processes run by themselves; ``locks`` the capacities of the locks that have more than
    one share; ``asks`` how many snapshots are asked for; ``faults`` how often each fault may strike; ``spares`` the
    instances that may join; ``depth`` how deep calls nest; ``copies_max`` how often a request may be sent in all, and
    ``hedged`` whether also while another copy is in transit; ``reruns``: the tasks run again when their process restarts.

    ``routes``: the services behind an address that is not a service's own name; ``also``: further services that a process has a
    server for; ``uninstrumented``: processes without an agent; ``gateways``: those of them that pass a request's stamp on with
    their own calls; ``forgers``: those that put other processes' names on theirs; ``clocks``: how far a process's clock
    is ahead of the detector's; ``limits``: how much recorders remember.

    ``counted``: processes count the requests that they send and receive, all of phase 1; ``scope``: a service whose instances
    are a group that is asked about by itself.
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
        """Every program: the root tasks' and the methods'."""
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
