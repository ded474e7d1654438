"""The types of one process's local state, as recorded at a cut and reported to the detector.

Party names are full (``process/name``); times are seconds since the epoch. Tuples are in the order of the events (arrivals,
sends), so that equal histories give equal reports.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

from stilltrue.model import (
    NO_FACTS,
    Activity,
    CallNumber,
    Facts,
    PartyName,
    ProcessId,
    ProcessName,
    SnapshotId,
    WaitNumber,
)

OBSERVED_MIN = WaitNumber(2**52)
"""The first number for waits of tasks and threads that no event recorded, but that were seen at a cut."""


class Caller(NamedTuple):
    """One incarnation of a process that makes calls; call numbers are unique within it. A tuple, for use as a dict key."""

    process: ProcessName
    incarnation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartyTarget:
    """A wait for a party of any process."""

    party: PartyName


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTarget:
    """A wait for the outcome (or the next item) of a call that this process made."""

    number: CallNumber


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceTarget:
    """A wait for a resource that parties of any process may hold (a row lock, a lease), identified by a global name."""

    resource: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerTarget:
    """A wait for the next item of a stream from the caller of this process's party ``served``."""

    served: PartyName


Target = PartyTarget | CallTarget | ResourceTarget | CallerTarget


def next_request_of(process: ProcessName, number: CallNumber) -> str:
    """The next request of a call that ``process`` has made, as a resource; the party that feeds its stream holds it."""
    return f"the next request of call {number} of {process}"


def room_for_request_of(process: ProcessName, number: CallNumber) -> str:
    """Room for the next request of a call that ``process`` has made; the party that reads the requests holds it."""
    return f"{process}/room for the next request of call {number}"


def room_for_reply_of(process: ProcessName, number: CallNumber) -> str:
    """Room for the next reply to a call that ``process`` has made; the party that reads the replies holds it."""
    return f"{process}/room for the next reply to call {number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalWait:
    """A wait as its own process knows it: the targets are not yet resolved to parties.

    The waiter goes on when ``needs`` of ``among`` have come, or at ``deadline``. ``uncoloured``: no stamp confirms the wait.
    ``what``: what is waited for, as text. ``certain`` is set by the detector after the verification round: whether the wait was
    still in force when its process looked again (False: unknown; None: not looked at).
    """

    waiter: PartyName
    number: WaitNumber
    among: tuple[Target, ...]
    needs: int = 1
    deadline: float | None = None
    since: float | None = None
    uncoloured: bool = False
    what: str = ""
    certain: bool | None = None

    @property
    def in_doubt(self) -> bool:
        """Whether neither a stamp nor a second look confirms the wait; no verdict may rest on it then."""
        return self.uncoloured if self.certain is None else not self.certain

    def with_certainty(self, certain: bool) -> LocalWait:
        """This wait with ``certain`` set. Built by hand: ``replace`` takes four times as long, and a round has thousands."""
        if self.certain is certain:
            return self
        return LocalWait(
            waiter=self.waiter,
            number=self.number,
            among=self.among,
            needs=self.needs,
            deadline=self.deadline,
            since=self.since,
            uncoloured=self.uncoloured,
            what=self.what,
            certain=certain,
        )

    def ending(self, deadline: float | None) -> LocalWait:
        """This wait, ending by itself at ``deadline`` at the latest."""
        if deadline is None or (self.deadline is not None and self.deadline <= deadline):
            return self
        return replace(self, deadline=deadline)

    def or_with(self, others: tuple[PartyName, ...], now: float) -> LocalWait:
        """This wait, also ending when one of ``others`` goes on; if that cannot be expressed, it ends by itself at ``now``."""
        if not others:
            return self
        if self.needs > 1:
            return self.ending(now)
        more = (PartyTarget(party=other) for other in others if other != self.waiter)
        return replace(self, among=(*self.among, *(target for target in more if target not in self.among)))


@dataclass(frozen=True, slots=True, kw_only=True)
class OutstandingCall:
    """A call outstanding at its caller, or one that failed in doubt (protocol rule 8).

    ``target`` is the address dialled. ``servers`` are the processes that have answered on that channel, with their incarnation
    at the time; ``strangers``: a process without a stamp has answered, too. ``party`` is None if the calling party is unknown.
    ``sent`` and ``received`` count stream items (a client that names the party of a call with a stream of requests counts
    their end as one more). ``facts`` travel with the request. ``copies_max``: how many times the request may be sent in all
    under this number, one more for each failed attempt; ``hedged``: also while another copy is outstanding. The detector sets
    ``copies_max`` to 0 when two verification rounds have shown that there is one copy.
    """

    number: CallNumber
    method: str
    target: str = ""
    servers: Mapping[ProcessName, int] = field(default_factory=lambda: MappingProxyType({}))
    strangers: bool = False
    party: PartyName | None = None
    since: float | None = None
    deadline: float | None = None
    sent: int = 0
    received: int = 0
    facts: Facts = field(default_factory=lambda: NO_FACTS)
    doubtful: bool = False
    copies_max: int = 1
    hedged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedCall:
    """A call that has arrived and is not over: queued behind ``pool`` or, once ``serving``, being served by ``party``.

    ``caller`` is None (and ``number`` 0) if the request had no stamp. ``taken``: the facts of the request are now the process's
    own. ``interruptible``: the handler is cancelled when the call is. ``hung_up``: the caller is gone but the handler still
    runs; its reply will not be received.
    """

    party: PartyName
    method: str
    caller: Caller | None = None
    number: CallNumber = CallNumber(0)
    serving: bool = False
    pool: str = ""
    since: float | None = None
    deadline: float | None = None
    sent: int = 0
    received: int = 0
    taken: bool = False
    interruptible: bool = False
    hung_up: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """An answered call, remembered until its caller's floor passes it; ``facts`` travel with the reply."""

    number: CallNumber
    sent: int = 0
    received: int = 0
    facts: Facts = field(default_factory=lambda: NO_FACTS)
    taken: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A server's memory of one caller: the highest number seen, the calls answered, and up to where some were forgotten.

    No call above ``highest`` has been seen (protocol rule 5 checks it). A call up to ``forgotten`` that is not listed may have
    been answered: its record was dropped for space. All calls below ``floor`` are over according to the caller's stamps (0: not
    known); it is checked when the report arrives, and not archived. ``plain`` are the numbers, ascending, of answered calls
    without further details (there may be thousands while one call holds the floor); ``answered`` are the others.
    """

    caller: Caller
    highest: CallNumber
    forgotten: CallNumber = CallNumber(0)
    floor: CallNumber = field(default=CallNumber(0), compare=False)
    answered: tuple[Answered, ...] = ()
    plain: tuple[CallNumber, ...] = ()

    def answer(self, number: CallNumber) -> Answered | None:
        """The record of this call if it was answered here, else None."""
        at = bisect_left(self.plain, number)
        if at < len(self.plain) and self.plain[at] == number:
            return Answered(number=number)
        return next((answered for answered in self.answered if answered.number == number), None)

    @property
    def numbers(self) -> tuple[CallNumber, ...]:
        """The numbers of all calls known to be answered, ascending."""
        return tuple(sorted((*self.plain, *(answered.number for answered in self.answered))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A bounded pool of workers: its size (None: unknown) and how many calls are queued behind it."""

    name: str
    size: int | None = None
    queued: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """``party`` holds one of the ``capacity`` shares of ``resource``."""

    party: PartyName
    resource: str
    capacity: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """A TCP connection, as gRPC core or the kernel knows it at one of its ends.

    ``name`` is the same at both ends: the network and the two addresses. ``socket`` is this end's number for it, never reused.
    ``begun`` and ``ended`` count its streams: one for each call handed to gRPC, none for HTTP requests.
    """

    name: str
    socket: int = 0
    begun: int = 0
    ended: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SentOver:
    """A call made here is on one of these connections, or waits in gRPC core until one of them has room for it."""

    call: CallNumber
    connections: tuple[Connection, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldUp:
    """Calls on a connection that have not arrived yet are held up until one of ``parties`` goes on.

    ``full``: the parties serve as many of its calls as it may carry at once; otherwise they occupy whatever accepts calls.
    """

    connection: Connection
    parties: tuple[PartyName, ...]
    full: bool = False
    what: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One process's local state for every snapshot in (``after``, ``snapshot``] (protocol rule 2), as sent to the detector.

    ``next_number`` is the number that the next call would have had: no server may have seen it or any above. ``lost`` counts
    the entries dropped to stay within the recorder's bounds (while it is not 0, calls may be missing: doubt). ``happenings``
    counts the events recorded so far (0: the agent does not count); if a later look (protocol rule 10) has the same count,
    nothing has happened since. ``doubt`` is set by the detector after the verification round: why the process's activity is
    uncertain (empty: it is certain, or was not looked at). ``sent_over`` and ``held_up`` are what gRPC core and the kernel
    report, soon after the cut, about calls that have been awaited for long.
    """

    process: ProcessId
    snapshot: SnapshotId
    after: SnapshotId
    cut_at: float
    next_number: CallNumber
    activity: Activity = Activity.ACTIVE
    made: tuple[OutstandingCall, ...] = ()
    served: tuple[ServedCall, ...] = ()
    seen: tuple[Seen, ...] = ()
    pools: tuple[Pool, ...] = ()
    waits: tuple[LocalWait, ...] = ()
    holds: tuple[Hold, ...] = ()
    facts: Facts = field(default_factory=lambda: NO_FACTS)
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    lost: int = 0
    happenings: int = 0
    doubt: str = ""
    sent_over: tuple[SentOver, ...] = ()
    held_up: tuple[HeldUp, ...] = ()
