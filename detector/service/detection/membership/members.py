"""The members: connected agents, and those that ended without a goodbye and are not forgotten yet.

Rules:

1. A hello makes a process a member; a goodbye ends its membership. A member whose lease has expired is *lost*: it stays a
   member, missing from every snapshot, until it is back, another incarnation replaces it, an operator removes it, or
   ``forget_seconds`` pass.
2. A new incarnation replaces the old one once the old one's stream has broken or been silent for a lease. Until then the new
   one is refused: two programs use the same name, and the first one keeps it.
3. The same incarnation on a new stream is the same member; the old stream is ended.
4. A lost member that sends a message is no longer lost. After a restart, the members from before are lost until they are back.
5. A name is bound to the first certificate that used it: as long as it is a member, an agent whose certificate has none of
   that certificate's names is refused, whatever its incarnation. Without certificates nothing is bound.
6. Beyond ``members_max`` the member that was lost first is forgotten; if none is lost, new processes are refused.
7. The total size of all members' newest reports is bounded. Beyond the bound, reports of lost members are dropped; then
   reports larger than an equal share are refused.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from detector.core.counting import counted
from detector.core.verification.verifier import AskLook
from detector.service.detection.membership.fair_shares import FairShares
from stilltrue.model import CallNumber, ProcessId, ProcessName, SnapshotId
from stilltrue.protocol.report import Report
from stilltrue.protocol.requests.cure import CureRequest
from stilltrue.protocol.requests.look import LookRequest

NO_BOUND = sys.maxsize


class Stream(Protocol):
    """The stream to one agent."""

    def send_marker(self, snapshot: SnapshotId, settled: Sequence[CallNumber] = ()) -> None:
        """Send the marker for ``snapshot``; it replaces one that has not been sent yet.

        ``settled``: the process's calls in doubt that were answered.
        """

    def send_look(self, request: LookRequest) -> None:
        """Ask the agent to look again (protocol rule 10)."""

    def send_stacks_request(self, number: int) -> None:
        """Ask for the stacks of its parties."""
        ...

    def send_cure(self, request: CureRequest) -> None:
        """Ask the agent to abort calls."""

    def replaced(self, text: str) -> None:
        """End the stream, because another has replaced it."""


class MemberState(Enum):
    """The state of a member: it reports, it does not, or its lease has expired."""

    LIVE = "live"
    MISSING = "missing"
    LOST = "lost"


class NameTakenError(Exception):
    """The name belongs to a connected process (rule 2)."""


class NameBoundError(Exception):
    """The name is bound to another certificate (rule 5)."""


class TooManyMembersError(Exception):
    """There are too many members (rule 6)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRecord:
    """The part of a member that is kept across a restart."""

    instance: str
    incarnation: int
    service: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    agent: str = ""
    reactive: bool = False
    connected_at: float = 0.0
    heard_at: float = 0.0
    names: Sequence[str] = ()

    def restored(self, now: float) -> Member:
        """Restore the member, as lost since ``now``, when the detector started."""
        return Member(
            process=ProcessId(service=self.service, instance=ProcessName(self.instance), incarnation=self.incarnation),
            labels=self.labels,
            agent=self.agent,
            reactive=self.reactive,
            connected_at=self.connected_at,
            heard_at=self.heard_at,
            colour=SnapshotId(0),
            stream=None,
            lost_at=now,
            restored=True,
            names=frozenset(self.names),
        )


NOT_MOVING = "not moved for a while, in no known wait"
"""How texts describe unexplained calls."""
NOT_TAKEN_SECONDS = 5.0
WAITING_LONG = "for a lock or an answer, with nobody known to bring it"
"""How texts describe unexplained waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What an agent records of its process: counts, and descriptions of what it cannot see.

    ``unexplained``: the number of parties that have not moved for a while and are in no known wait; None if unknown.
    ``unexplained_calls``: the number of calls that such parties serve and whose reply is due; None if unknown.
    ``unexplained_waits``: the number of other parties that wait for such a party, or for an unknown one. Idle parties never do.
    ``instrumented``: every channel and server made since the process joined is recorded: nothing recorded means nothing made.
    """

    servers: int = 0
    channels: int = 0
    calls: int = 0
    servers_unseen: int = 0
    channels_unseen: int = 0
    blind: tuple[str, ...] = ()
    unexplained: int | None = None
    unexplained_calls: int | None = None
    unexplained_waits: int | None = None
    instrumented: bool = False


@dataclass(slots=True, kw_only=True, eq=False)
class Member:
    """One agent's connection and its latest data. ``stream``: None once it has broken. Times in seconds.

    ``joined_at``: when this incarnation first joined; ``sight``: what its agent records; ``report``: the last report.
    ``lost_at``: since when it is lost (rule 1); ``restored``: known from before a restart, and not back yet.
    ``looks``: can answer verification rounds (else its parties stay in doubt). ``names``: of its certificate.
    ``unreceived``: the calls of its last report that no member has received, as text (:mod:`.unreceived_calls`).
    """

    process: ProcessId
    labels: Mapping[str, str]
    agent: str
    reactive: bool
    connected_at: float
    heard_at: float
    colour: SnapshotId
    stream: Stream | None
    lost_at: float | None = None
    restored: bool = False
    joined_at: float = 0.0
    sight: Sight | None = None
    report: Report | None = None
    reports_dropped: int = 0
    stamps_refused: int = 0
    looks: bool = False
    cures: bool = False
    stacks: bool = False
    names: frozenset[str] = frozenset()
    unreceived: tuple[str, ...] = ()

    @property
    def name(self) -> ProcessName:
        """The process's name."""
        return self.process.instance

    @property
    def unexplained(self) -> int | None:
        """The number of its unexplained parties; None if unknown."""
        return None if self.sight is None else self.sight.unexplained

    @property
    def unexplained_calls(self) -> int:
        """The number of calls that unexplained parties serve and whose reply is due, and of those that no worker has taken."""
        served = 0 if self.sight is None else self.sight.unexplained_calls or 0
        # a sidecar does not see when its program takes a call
        return served + (0 if self.report is None or self.agent.startswith("sidecar/") else not_taken(self.report))

    @property
    def unexplained_waits(self) -> int:
        """The number of its other parties that are stuck in such waits."""
        return 0 if self.sight is None else self.sight.unexplained_waits or 0

    def not_moving(self) -> tuple[str, ...]:
        """Its unexplained calls and waits, as text; empty if none are known."""
        calls, waits = self.unexplained_calls, self.unexplained_waits
        found = (f"serves {counted(calls, 'call')} that {'has' if calls == 1 else 'have'} {NOT_MOVING}",) if calls else ()
        if not waits:
            return found
        who = f"{counted(waits, 'thread or task', 'threads or tasks')} that {'waits' if waits == 1 else 'wait'}"
        return (*found, f"has {who} {WAITING_LONG}")

    def unrecorded(self) -> tuple[str, ...]:
        """The servers and channels whose calls its agent does not record, as text; empty if none are known."""
        sight = self.sight
        if sight is None:
            return ()
        unseen = ((sight.servers_unseen, "server"), (sight.channels_unseen, "channel"))
        made_before = (f"{counted(count, what)} made before the agent, or without it" for count, what in unseen if count)
        return (*made_before, *sight.blind)

    def unseen(self) -> tuple[str, ...]:
        """What its agent cannot see, as text; empty if it sees everything or this is unknown."""
        sight, unrecorded = self.sight, self.unrecorded()
        if sight is None or sight.servers or sight.channels or sight.calls or self.party_count():
            return unrecorded
        if self.report is not None and self.report.holds:  # parties that hold something or answer a name
            return unrecorded
        if sight.servers_unseen or sight.channels_unseen or sight.instrumented:
            return unrecorded
        return ("no server, channel or call is recorded", *unrecorded)

    def blind_spots(self) -> tuple[str, ...]:
        """The reasons why answers do not, or not fully, speak for it."""
        return (*self.unseen(), *self.not_moving(), *(() if self.report is None else unknowns(self.report)), *self.unreceived)

    def party_count(self) -> int:
        """The number of parties in its last report."""
        report = self.report
        return 0 if report is None else len({*(s.party for s in report.served), *(w.waiter for w in report.waits)})

    def record(self) -> MemberRecord:
        """The record to keep across a restart."""
        return MemberRecord(
            instance=self.process.instance,
            incarnation=self.process.incarnation,
            service=self.process.service,
            labels=dict(self.labels),
            agent=self.agent,
            reactive=self.reactive,
            connected_at=self.connected_at,
            heard_at=self.heard_at,
            names=sorted(self.names),
        )

    @property
    def live(self) -> bool:
        """Whether markers can reach it."""
        return self.stream is not None


class Roster:
    """The members, by name."""

    def __init__(
        self,
        *,
        lease_seconds: float,
        members_max: int,
        forget_seconds: float = math.inf,
        reports_bytes_max: int = NO_BOUND,
        reports_entries_max: int = NO_BOUND,
    ) -> None:
        """``members_max``: the bound of rule 6; ``reports_...``: those of rule 7."""
        self._lease_seconds = lease_seconds
        self._forget_seconds = forget_seconds
        self._members_max = members_max
        self._members: dict[ProcessName, Member] = {}
        self._report_bytes = FairShares(reports_bytes_max)
        self._report_entries = FairShares(reports_entries_max)

    def __len__(self) -> int:
        return len(self._members)

    def get(self, name: ProcessName) -> Member | None:
        """Find a member by name."""
        return self._members.get(name)

    def all(self) -> list[Member]:
        """All members, sorted by name."""
        return [self._members[name] for name in sorted(self._members)]

    def send_look(self, ask: AskLook) -> str:
        """Ask a process to look again; return why that is impossible, or an empty string."""
        name = ask.process.instance
        member = self._members.get(name)
        if member is None or member.process != ask.process or member.stream is None:
            return f"{name} is not connected"
        if not member.looks:
            return f"the agent of {name} ({member.agent or 'unknown'}) is too old to look again"
        member.stream.send_look(ask.request)
        return ""

    def to_evict(self) -> Member | None:
        """The member to forget before another process can be admitted (rule 6)."""
        if len(self._members) < self._members_max:
            return None
        return min(self._lost(), key=lambda member: (member.lost_at, member.name), default=None)

    def admit(self, member: Member) -> Member | None:
        """Admit ``member`` (rules 1 to 6); returns the one that it replaced, if any.

        Raises :class:`NameBoundError`, :class:`NameTakenError` or :class:`TooManyMembersError`.
        """
        before = self._members.get(member.name)
        if before is not None and before.names and not before.names & member.names:
            bound = min(before.names)
            raise NameBoundError(f"{member.name} is bound to the certificate of {bound} until it leaves or is forgotten")
        if before is None and len(self._members) >= self._members_max:
            raise TooManyMembersError(f"there are already {self._members_max} members (--members-max)")
        if before is not None and before.process != member.process and self._is_connected(before, member.connected_at):
            raise NameTakenError(f"{member.name} is already connected; give each process its own instance name")
        same = before is not None and before.process == member.process
        member.joined_at = before.joined_at if before is not None and same else member.connected_at
        self._members[member.name] = member
        return before

    def _is_connected(self, member: Member, now: float) -> bool:
        return member.live and now - member.heard_at <= self._lease_seconds

    def is_member(self, member: Member) -> bool:
        """Whether ``member`` is the current connection of its name."""
        return self._members.get(member.name) is member

    def remove(self, member: Member) -> bool:
        """End a membership; returns False if another connection has replaced it or it had already ended."""
        if not self.is_member(member):
            return False
        del self._members[member.name]
        self._release(member.name)
        return True

    def accepts_bytes(self, name: ProcessName, amount: int) -> bool:
        """Whether a member's next report may have this many bytes; if so, they become its share (rule 7)."""
        return self._accepts(self._report_bytes, name, amount)

    def accepts_entries(self, name: ProcessName, amount: int) -> bool:
        """The same for the entries of its report: waits, calls and so on."""
        return self._accepts(self._report_entries, name, amount)

    def accepts_unchanged(self, name: ProcessName) -> bool:
        """The same for a report with unchanged content."""
        return self._report_bytes.keep(name) and self._report_entries.keep(name)

    def _accepts(self, shares: FairShares, name: ProcessName, amount: int) -> bool:
        if shares.take(name, amount):
            return True
        for member in self._lost():
            member.report = None
            self._release(member.name)
        return shares.take(name, amount)

    def _release(self, name: ProcessName) -> None:
        self._report_bytes.release(name)
        self._report_entries.release(name)

    def with_expired_leases(self, now: float) -> list[Member]:
        """The members whose lease has expired and that are not lost yet, sorted by name."""
        oldest = now - self._lease_seconds
        return [member for member in self.all() if member.lost_at is None and member.heard_at < oldest]

    def to_forget(self, now: float) -> list[Member]:
        """The members that have been lost for too long (rule 1)."""
        since = now - self._forget_seconds
        return [member for member in self._lost() if member.lost_at is not None and member.lost_at <= since]

    def shift(self, seconds: float) -> None:
        """Extend all leases by ``seconds`` in which nothing could be received."""
        for member in self._members.values():
            member.heard_at += seconds
            if member.lost_at is not None:
                member.lost_at += seconds

    def _lost(self) -> list[Member]:
        return [member for member in self.all() if member.lost_at is not None]


def not_taken(report: Report) -> int:
    """The number of calls that no worker has taken for ``NOT_TAKEN_SECONDS``, though not all workers are known to serve calls.

    They count as able to begin. If the pool's other workers do something else, and wait for one of them, they never do.
    """
    if not any(pool.queued for pool in report.pools):
        return 0
    serving = Counter(served.pool for served in report.served if served.serving)
    full = {pool.name for pool in report.pools if pool.size is not None and serving[pool.name] >= pool.size}
    waiters = {wait.waiter for wait in report.waits}
    before = report.cut_at - NOT_TAKEN_SECONDS
    return sum(
        served.pool not in full and served.deadline is None and served.party not in waiters
        for served in report.served
        if not served.serving and served.pool and (served.since or report.cut_at) <= before
    )


def unknowns(report: Report) -> Iterable[str]:
    """What a report does not say about its process, as text."""
    for pool in report.pools:
        if pool.size is None:
            yield f"the size of pool {pool.name} is unknown"
    outside = sum(served.caller is None for served in report.served)
    if outside:
        yield f"serves {counted(outside, 'call')} from outside"
    if report.lost:
        yield f"{counted(report.lost, 'record')} dropped by the agent's bounds"
