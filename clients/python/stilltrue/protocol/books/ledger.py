"""The recorder's mutable entries: a call made, a call served, a channel. Each freezes into a value for the report.

These are the only mutable records; the shells hold them as handles and hand them back to the recorder, which alone changes
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Protocol

from stilltrue.model import NO_FACTS, CallNumber, Facts, PartyName, ProcessName, SnapshotId, WaitNumber
from stilltrue.protocol.books.call_state import ClientState, ServerState
from stilltrue.protocol.report import Caller, CallerTarget, CallTarget, LocalWait, OutstandingCall, ServedCall, Target
from stilltrue.protocol.stamp import all_marked

SERVERS_PER_CHANNEL_MAX = 64
SERVERS_NAMED_MAX = 4
"""Servers of a channel that a stamp names: the others stamp each reply."""
NEVER_TOLD = SnapshotId(-1)
NO_WAIT = WaitNumber(0)
NO_REPLY: tuple[Facts, Facts] = (NO_FACTS, NO_FACTS)
_SENT, _QUEUED = ClientState.SENT, ServerState.QUEUED  # members of an enum are slow to look up
_SERVING = (ServerState.SERVED, ServerState.UNHEARD)
_HUNG_UP = (ServerState.ABANDONED, ServerState.UNHEARD)


class ChannelRecord:
    """A ``grpc.Channel``: its address, and which processes have answered on it."""

    __slots__ = ("copies_max", "core_target", "dialled", "hedged", "known", "servers", "strangers", "target")

    def __init__(self, target: str, *, copies_max: int = 1, hedged: bool = False, core_target: str | None = None) -> None:
        """``target``: the address as dialled; ``core_target``: as gRPC's core has it, if all calls on the channel go there.

        The others as :class:`~stilltrue.protocol.report.OutstandingCall`.
        """
        self.target = target
        self.core_target = core_target
        self.copies_max = copies_max
        self.hedged = hedged
        self.servers: dict[ProcessName, int] = {}
        self.strangers = False
        self.known = ""
        """The marks of servers that have answered, as stamps have them."""
        self.dialled: Callable[[], object] | None = None
        """What gives gRPC's own channel, while there is one; opaque here."""

    def answered_by(self, server: ProcessName, incarnation: int) -> None:
        """A reply with this server's stamp came over the channel. Beyond the bound the oldest server becomes a stranger."""
        if self.servers.get(server) == incarnation:
            return
        if server not in self.servers and len(self.servers) >= SERVERS_PER_CHANNEL_MAX:
            del self.servers[next(iter(self.servers))]
            self.strangers = True
        self.servers[server] = incarnation
        if not self.hedged:  # what is left of its calls when one copy is answered depends on the reply's stamp
            self.known = all_marked(islice(self.servers.items(), SERVERS_NAMED_MAX))


class ClientCall:
    """A call made here. ``wait`` is the number of its party's wait for it while it is awaited; 0 is none.

    What few calls ever need has its default in the class: one is made for each call.
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
        """As :class:`~stilltrue.protocol.report.OutstandingCall`."""
        self.number = number
        self.method = method
        self.channel = channel
        self.party = party
        self.since = self.wait_since = since
        self.deadline = self.wait_until = deadline
        self.facts = facts

    @property
    def among(self) -> tuple[CallTarget]:
        """What a wait for its outcome, or for an item of it, waits for."""
        if self._among is None:
            self._among = (CallTarget(number=self.number),)
        return self._among

    def freeze(self) -> OutstandingCall:
        """As it goes into a report."""
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
        """The wait of the call's party for its outcome; only while ``wait`` is not 0 and the party is known."""
        if self.party is None:
            raise AssertionError("a wait needs a waiter")
        return LocalWait(
            waiter=self.party,
            number=self.wait,
            among=self.among,
            deadline=self.wait_until,
            since=self.wait_since,
            what=f"the reply to {self.method}",
        )


class OpenWait:
    """A wait that lasts. Most of them, for the items of streams, end before anybody asks what they were for."""

    __slots__ = ("among", "deadline", "needs", "number", "since", "uncoloured", "waiter", "what")

    def __init__(
        self,
        waiter: PartyName,
        number: WaitNumber,
        among: tuple[Target, ...],
        needs: int,
        deadline: float | None,
        since: float,
        uncoloured: bool,
        what: str,
    ) -> None:
        """As :class:`~stilltrue.protocol.report.LocalWait`."""
        self.waiter = waiter
        self.number = number
        self.among = among
        self.needs = needs
        self.deadline = deadline
        self.since = since
        self.uncoloured = uncoloured
        self.what = what

    def freeze(self) -> LocalWait:
        """As it goes into a report."""
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
    """What the shell knows of a call that is being served; runs none of the application's code, and takes no lock."""

    def has_ended(self) -> bool:
        """Whether the call is over for its caller, though it is still being served."""


class ServerCall:
    """A call that arrived here: queued, or being served by ``party``. Defaults as in :class:`ClientCall`."""

    state = _QUEUED
    sent = 0
    received = 0
    dated = False
    """Whether its own deadline is known, or that it has none."""
    heard = NEVER_TOLD
    """The colour of the request, if its sender knows who answers: a reply of the same colour needs no stamp (rule 1)."""
    taken = False
    """The facts that came with the request are the process's own."""
    reply: tuple[Facts, Facts] = NO_REPLY
    """What travels with the reply, and what changes with it (rule 7)."""
    context: ServedContext | None = None
    """Knows whether the caller is gone, if it is to be asked for that; until the call is over."""
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
        """As :class:`~stilltrue.protocol.report.ServedCall`; ``serial`` numbers the calls that arrived here."""
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
        """What a wait for its caller's next item waits for."""
        if self._among is None:
            self._among = (CallerTarget(served=self.party),)
        return self._among

    @property
    def serving(self) -> bool:
        """Whether the call is being served."""
        return self.state in _SERVING

    @property
    def hung_up(self) -> bool:
        """Whether the caller is gone (cancelled, timed out, disconnected), though the handler may go on."""
        return self.state in _HUNG_UP

    def freeze(self) -> ServedCall:
        """As it goes into a report."""
        return ServedCall(
            party=self.party,
            method=self.method,
            caller=self.caller,
            number=self.number,
            serving=self.serving,
            pool=self.pool,
            since=self.since,
            deadline=self.deadline,
            sent=self.sent,
            received=self.received,
            taken=self.taken,
            interruptible=self.interruptible,
            hung_up=self.hung_up,
        )


def is_blocked(made: Iterable[ClientCall], served: Iterable[ServerCall], waiters: set[PartyName]) -> bool:
    """Whether no party here can act: every call's maker is known and waits, and so does every party that serves one.

    A call that is neither served nor behind a pool is in an interceptor, or behind an unknown pool: it may act.
    """
    return all(call.party in waiters for call in made) and all(
        call.party in waiters or (call.pool and not call.serving) for call in served
    )
