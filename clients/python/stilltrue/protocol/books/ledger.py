"""The recorder's mutable entries: a call made, a call served, a wait, a channel. Each freezes into a value for the report.

The shells hold entries as handles and pass them back to the recorder; only the recorder changes them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

from stilltrue.model import NO_FACTS, CallNumber, Facts, PartyName, ProcessName, SnapshotId, WaitNumber
from stilltrue.protocol.books.call_state import ClientState, ServerState
from stilltrue.protocol.report import (
    OBSERVED_MIN,
    Caller,
    CallerTarget,
    CallTarget,
    LocalWait,
    OutstandingCall,
    PartyTarget,
    ServedCall,
    Target,
)
from stilltrue.protocol.stamp import marks_of

SERVERS_PER_CHANNEL_MAX = 64
SERVERS_NAMED_MAX = 4
"""The number of a channel's servers that a stamp names; the others stamp each reply."""
ROUNDS_MAX = 100
"""A longer chain of waits is taken to hold its parties up."""
NO_COLOUR = SnapshotId(-1)
NO_WAIT = WaitNumber(0)
NO_REPLY: tuple[Facts, Facts] = (NO_FACTS, NO_FACTS)
_SENT, _QUEUED = ClientState.SENT, ServerState.QUEUED  # looking up an enum member is slow
_SERVING = (ServerState.SERVED, ServerState.UNHEARD)
_HUNG_UP = (ServerState.ABANDONED, ServerState.UNHEARD)


@dataclass(slots=True, eq=False)
class ChannelRecord:
    """A ``grpc.Channel``: its address, and the processes that have answered on it.

    ``target``: the address as dialled; ``core_target``: as gRPC core has it, if all calls on the channel go there. Fields of
    :class:`~stilltrue.protocol.report.OutstandingCall` mean the same here.
    """

    target: str
    copies_max: int = 1
    hedged: bool = False
    core_target: str | None = None
    servers: dict[ProcessName, int] = field(default_factory=dict)
    strangers: bool = False
    known: str = ""
    """The marks of servers that have answered, in the form that stamps carry."""
    dialled: Callable[[], object] | None = None
    """Returns gRPC's own channel while there is one; opaque here."""

    def answered_by(self, server: ProcessName, incarnation: int) -> None:
        """Record a reply stamped by this server. Beyond the bound the oldest server becomes a stranger."""
        if self.servers.get(server) == incarnation:
            return
        if server not in self.servers and len(self.servers) >= SERVERS_PER_CHANNEL_MAX:
            del self.servers[next(iter(self.servers))]
            self.strangers = True
        self.servers[server] = incarnation
        if not self.hedged:  # the first answer to a hedged call must be stamped: it leaves the other copies in doubt
            self.known = marks_of(islice(self.servers.items(), SERVERS_NAMED_MAX))


class ClientCall:
    """A call made here. ``wait`` is the number of its party's wait for it; 0 while it is not awaited.

    One is created per call, so rarely used attributes have class-level defaults.
    """

    state = _SENT
    handle: Callable[[], object] | None = None
    """Returns the shell's own object for the call, while there is one; opaque here."""
    sent = 0
    received = 0
    wait = NO_WAIT
    wait_since: float
    wait_until: float | None
    _among: tuple[CallTarget] | None = None

    def __init__(
        self,
        number: CallNumber,
        method: str,
        channel: ChannelRecord,
        party: PartyName | None,
        since: float,
        deadline: float | None,
        facts: Facts,
    ) -> None:
        """Arguments are as in :class:`~stilltrue.protocol.report.OutstandingCall`."""
        self.number = number
        self.method = method
        self.channel = channel
        self.party = party
        self.since = self.wait_since = since
        self.deadline = self.wait_until = deadline
        self.facts = facts

    @property
    def among(self) -> tuple[CallTarget]:
        """The target of a wait for the call's outcome or for an item of its stream."""
        if self._among is None:
            self._among = (CallTarget(number=self.number),)
        return self._among

    def freeze(self) -> OutstandingCall:
        """The call as reported."""
        return OutstandingCall(
            number=self.number,
            method=self.method,
            target=self.channel.target,
            servers=dict(self.channel.servers),
            strangers=self.channel.strangers,
            party=self.party,
            since=self.since,
            deadline=self.deadline,
            sent=self.sent,
            received=self.received,
            facts=self.facts,
            doubtful=self.state is ClientState.IN_DOUBT,
            copies_max=self.channel.copies_max,
            hedged=self.channel.hedged,
        )

    def local_wait(self) -> LocalWait:
        """The party's wait for the call's outcome. Call it only while ``wait`` is not 0 and the party is known."""
        if self.party is None:
            raise AssertionError("a wait without a waiter")
        return LocalWait(
            waiter=self.party,
            number=self.wait,
            among=self.among,
            deadline=self.wait_until,
            since=self.wait_since,
            what=f"the reply to {self.method}",
        )


@dataclass(slots=True, eq=False)
class OpenWait:
    """A wait that has not ended, with the fields of :class:`LocalWait`, but cheaper: most end before any report needs them."""

    waiter: PartyName
    number: WaitNumber
    among: tuple[Target, ...]
    needs: int
    deadline: float | None
    since: float
    uncoloured: bool
    what: str

    def freeze(self) -> LocalWait:
        """The wait as reported."""
        return LocalWait(
            waiter=self.waiter,
            number=self.number,
            among=self.among,
            needs=self.needs,
            deadline=self.deadline,
            since=self.since,
            uncoloured=self.uncoloured,
            what=self.what,
        )


class ServedContext(Protocol):
    """The shell's view of a call being served. It must not run the application's code or take a lock."""

    def has_ended(self) -> bool:
        """Whether the call is over for its caller, even though it is still being served."""


class ServerCall:
    """A call that arrived here: queued, or being served by ``party``. Class-level defaults as in :class:`ClientCall`."""

    state = _QUEUED
    sent = 0
    received = 0
    deadline_known = False
    """Whether it is known when the call times out, or that it never does."""
    unstamped_colour = NO_COLOUR
    """The request's colour, if its sender knows who answers: a reply of this colour needs no stamp (protocol rule 1)."""
    taken = False
    """Whether the facts that came with the request are now the process's own."""
    reply: tuple[Facts, Facts] = NO_REPLY
    """The facts that travel with the reply, and those that change with it (protocol rule 7)."""
    context: ServedContext | None = None
    """Polled for whether the caller is gone, until it is or the call is over; None: not polled."""
    unanswered = False
    """Whether its handler has ended without a status: no worker serves it, and its caller goes on waiting."""
    _among: tuple[CallerTarget] | None = None

    def __init__(
        self,
        serial: int,
        party: PartyName,
        method: str,
        caller: Caller | None,
        number: CallNumber,
        pool: str,
        since: float,
        deadline: float | None,
        interruptible: bool,
    ) -> None:
        """Arguments are as in :class:`~stilltrue.protocol.report.ServedCall`; ``serial`` numbers the calls received here."""
        self.serial = serial
        self.party = party
        self.method = method
        self.caller = caller
        self.number = number
        self.pool = pool
        self.since = since
        self.deadline = deadline
        self.interruptible = interruptible

    @property
    def among(self) -> tuple[CallerTarget]:
        """The target of a wait for the caller's next item."""
        if self._among is None:
            self._among = (CallerTarget(served=self.party),)
        return self._among

    @property
    def serving(self) -> bool:
        """Whether the call has left the queue and is not over."""
        return self.state in _SERVING

    @property
    def hung_up(self) -> bool:
        """Whether the caller is gone (cancelled, timed out, disconnected); the handler may still run."""
        return self.state in _HUNG_UP

    def freeze(self) -> ServedCall:
        """The call as reported."""
        return ServedCall(
            party=self.party,
            method=self.method,
            caller=self.caller,
            number=self.number,
            serving=self.serving,
            pool="" if self.unanswered else self.pool,
            since=self.since,
            deadline=self.deadline,
            sent=self.sent,
            received=self.received,
            taken=self.taken,
            interruptible=self.interruptible,
            hung_up=self.hung_up,
        )


def is_blocked(made: Iterable[ClientCall], served: Iterable[ServerCall], waiters: set[PartyName]) -> bool:
    """Whether no party here can act: each call was made by a known party that waits, and each party that serves one waits.

    A call that is neither served nor queued behind a pool is in an interceptor, or behind an unknown pool: it may act.
    """
    return all(call.party in waiters for call in made) and all(
        call.party in waiters or (call.pool and not call.serving) for call in served
    )


def held_up(waits: Iterable[LocalWait], parked: Container[WaitNumber] = ()) -> set[PartyName]:
    """The parties that wait, except those seen to wait for one that waits for nothing (a task that takes from a queue, say).

    What that one does is recorded if it makes a call, and found by the look for termination if not. A wait that another
    process ends (``parked``) counts likewise: for the process, it is like the wait for a call to serve.
    """
    left: dict[PartyName, list[LocalWait]] = {}
    for wait in waits:
        left.setdefault(wait.waiter, []).append(wait)
    for _ in range(ROUNDS_MAX):
        free = [party for party, own in left.items() if all(wait.number in parked or _goes_on(wait, left) for wait in own)]
        if not free:
            break
        for party in free:
            del left[party]
    return set(left)


def _goes_on(wait: LocalWait, waiters: Container[PartyName]) -> bool:
    """Whether enough of the parties for which a party was seen to wait are not waiting themselves."""
    free = [one for one in wait.among if isinstance(one, PartyTarget) and one.party not in waiters]
    return wait.number >= OBSERVED_MIN and len(free) >= wait.needs
