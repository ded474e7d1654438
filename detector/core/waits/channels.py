"""Channels by difference (rule 4): where each outstanding call is, from the two ends' cuts alone.

A call outstanding at its caller's cut is *being served* by a party, *queued* behind a pool, its *reply in transit* (a member
has seen it and none serves it any more), or its *request in transit* (no member has seen it). Only positive evidence blocks:
a call that no member has seen may be anywhere, and ends by itself; earlier answers on its channel prove nothing.
Whatever is not certain is ``UNKNOWN``: doubt never makes a TRUE.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import chain
from typing import NamedTuple

from stilltrue.model import CallNumber, PartyName, ProcessId, ProcessName
from stilltrue.protocol.report import Answered, Caller, OutstandingCall, Pool, Report, Seen, ServedCall

PERHAPS_MAX = 32
"""How many missing members a wait names that may have its call: only reports of theirs can tell, and they may be thousands.

Together, all missing members move or none of them does, so that the first few stand for all.
"""
FOR_WORKER = "a worker for "
"""What the text of a wait says of a call that is queued behind a full pool."""


class Where(Enum):
    """Where a call is when its caller waits for it."""

    SERVED = "being served"
    QUEUED = "queued"
    REPLY_IN_TRANSIT = "reply in transit"
    REQUEST_IN_TRANSIT = "request in transit"
    MISSING = "perhaps at a missing member"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLocation:
    """Where one call is: one of the parties ``among`` must move for it to go on; if there are none, it goes on by itself.

    ``server`` is the process that has it, if known; ``served`` and ``answered`` are its records there. ``repeated``: perhaps
    the server has lost the caller without knowing yet, and the request is in transit to another (a later look decides).
    ``claims``: a call that is made once is said to be in several places, and it is in one of these. The others come from
    somebody who forged its stamp, or who copies requests (a mesh that mirrors traffic).
    """

    where: Where
    among: tuple[PartyName, ...] = ()
    what: str = ""
    server: ProcessName | None = None
    served: ServedCall | None = None
    answered: Answered | None = None
    repeated: bool = False
    claims: tuple[CallLocation, ...] = ()


class Orphan(NamedTuple):
    """Rule 5: ``server`` claims of ``caller`` what ``caller``'s own report excludes. One of the two is wrong."""

    server: ProcessName
    caller: ProcessName
    text: str


@dataclass(frozen=True, slots=True)
class _PoolView:
    """One process's pool at its cut; full when each of its workers serves a party that we know."""

    process: ProcessName
    pool: Pool
    busy: tuple[PartyName, ...]

    @property
    def full(self) -> bool:
        return self.pool.size is not None and len(self.busy) >= self.pool.size

    @property
    def text(self) -> str:
        """How full it is, in words."""
        queued = f", {self.pool.queued} queued" if self.pool.queued else ""
        return f"{self.process}'s pool {self.pool.name} ({len(self.busy)} of {self.pool.size} busy{queued})"


class Channels:
    """All channels of one snapshot: built once from its reports, then asked for each outstanding call."""

    def __init__(self, reports: Mapping[ProcessName, Report], missing: Sequence[ProcessId]) -> None:
        """``reports`` by process; ``missing`` are the members without one."""
        self._reports = reports
        self._missing = {member.instance: member for member in missing}
        self._served: dict[tuple[Caller, CallNumber], list[tuple[ProcessName, ServedCall]]] = {}
        self._seen: dict[Caller, list[tuple[ProcessName, Seen]]] = {}
        self._pools: dict[tuple[ProcessName, str], _PoolView] = {}
        self.absent = tuple(map(PartyName, sorted(self._missing)[:PERHAPS_MAX]))
        """Those of the missing members whom waits name that depend on all of them."""
        self._perhaps = CallLocation(where=Where.MISSING, among=self.absent, what=perhaps_of(sorted(self._missing)))
        for name in sorted(reports):
            self._index(name, reports[name])

    def _index(self, name: ProcessName, report: Report) -> None:
        busy: dict[str, list[PartyName]] = {pool.name: [] for pool in report.pools}
        for served in report.served:
            if served.caller is not None:
                self._served.setdefault((served.caller, served.number), []).append((name, served))
            if served.serving and served.pool in busy:
                busy[served.pool].append(served.party)
        for seen in report.seen:
            self._seen.setdefault(seen.caller, []).append((name, seen))
        views = [_PoolView(name, pool, tuple(busy[pool.name])) for pool in report.pools]
        self._pools.update({(name, view.pool.name): view for view in views})

    def place(self, process: ProcessId, call: OutstandingCall) -> CallLocation:
        """Where ``call``, made by ``process``, is. A stamp on a call of another method was passed on (rule 9)."""
        caller = Caller(process.instance, process.incarnation)
        records = [one for one in self._served.get((caller, call.number), []) if one[1].method == call.method]
        heard = [(name, served) for name, served in records if not served.hung_up]
        memories = self._seen.get(caller, ())
        answers = [(name, answer) for name, seen in memories if (answer := seen.answer(call.number)) is not None]
        if heard and not call.hedged:  # answered as well: one of the two got the stamp from somebody who passed it on
            held = self._held(heard, repeated=call.copies_max > 1 or (bool(answers) and call.copies_max > 0))
            return held if call.copies_max > 1 or len(heard) == 1 else self._contested(held, heard)
        if answers and (call.hedged or call.doubtful) and len(records) + len(answers) < call.copies_max:
            elsewhere = self._perhaps_missing() if call.doubtful else None  # which may have answered it, too
            return elsewhere or CallLocation(where=Where.UNKNOWN)  # a copy may be on its way, whatever became of the others
        if answers:  # with a failure, perhaps, and the next try may be at a member that did not report
            elsewhere = self._perhaps_missing() if call.copies_max > 1 and not call.doubtful else None
            return elsewhere or CallLocation(where=Where.REPLY_IN_TRANSIT, server=answers[-1][0], answered=answers[-1][1])
        if heard:
            return self._hedged(call, heard, copies=len(records))
        if records or any(call.number <= seen.forgotten for _, seen in memories):
            return self._astray(call, lost=bool(records))
        return self._unseen(call)

    def _astray(self, call: OutstandingCall, *, lost: bool) -> CallLocation:
        """The server lost its record of the call, or (``lost``) no one will receive the reply: the caller fails or retries."""
        elsewhere = None if lost and call.copies_max <= 1 else self._perhaps_missing()
        return elsewhere or CallLocation(where=Where.UNKNOWN)

    def _hedged(self, call: OutstandingCall, records: list[tuple[ProcessName, ServedCall]], *, copies: int) -> CallLocation:
        """Some copies have arrived; others may be in transit, or be sent yet, as long as there are fewer than there may be."""
        held = self._held(records)
        if copies >= call.copies_max or not held.among:
            return held
        other = self._unseen(call)
        what = f"{held.what} or {other.what}" if other.among else ""
        return replace(held, among=held.among + other.among if other.among else (), what=what)

    def _held(self, records: list[tuple[ProcessName, ServedCall]], *, repeated: bool = False) -> CallLocation:
        """Served or queued, by one process or (retried, hedged) by several: it waits for 1 of them all."""
        among: list[tuple[PartyName, ...]] = []
        texts: list[str] = []
        full: set[tuple[ProcessName, str]] = set()
        for name, served in records:
            if served.serving:
                among.append((served.party,))
                texts.append(f"the reply of {name} to {served.method}")
                continue
            view = self._pools.get((name, served.pool))
            if view is None or not view.full:  # a free worker, or one that is unknown, may take it at any moment
                return CallLocation(where=Where.QUEUED, server=name, served=served)
            if (name, served.pool) in full:
                continue
            full.add((name, served.pool))
            among.append(view.busy)
            texts.append(f"{FOR_WORKER}{served.method} in {view.text}")
        name, served = records[0]
        where = Where.SERVED if served.serving else Where.QUEUED
        what = " or ".join(texts)
        parties = among[0] if len(among) == 1 else tuple(chain.from_iterable(among))  # one pool's: the same for all its queue
        return CallLocation(where=where, among=parties, what=what, server=name, served=served, repeated=repeated)

    def _contested(self, held: CallLocation, records: list[tuple[ProcessName, ServedCall]]) -> CallLocation:
        """A call that can be in one place only, and is said to be in several."""
        return replace(held, claims=tuple(self._held([one]) for one in records))

    def _unseen(self, call: OutstandingCall) -> CallLocation:
        """No member that reported has it: anybody may have it, and answer it, unless a missing member may have it."""
        missing = self._perhaps_missing()
        if missing is not None:
            return missing
        return CallLocation(where=Where.UNKNOWN if self._has_lost_a_server(call) else Where.REQUEST_IN_TRANSIT)

    def _perhaps_missing(self) -> CallLocation | None:
        """The members without a report, any of which may have the call; None when there are none."""
        return self._perhaps if self._missing else None

    def _has_lost_a_server(self, call: OutstandingCall) -> bool:
        """Whether a server of the call's channel is gone, perhaps with what the call carried: this only adds doubt."""
        return any(self._run_of(name) != run for name, run in call.servers.items())

    def _run_of(self, name: ProcessName) -> int | None:
        """The incarnation of a member; None: it is none."""
        if name in self._missing:
            return self._missing[name].incarnation
        report = self._reports.get(name)
        return None if report is None else report.process.incarnation

    def forgetful(self) -> tuple[ProcessName, ...]:
        """The processes that had to forget callers, doubts, or an answer to a call about which no other member knows."""
        return tuple(sorted({name for process in self._reports for name in self.forgetful_for(process)}))

    def forgetful_for(self, name: ProcessName) -> Iterator[ProcessName]:
        """Those of them that one process and its calls show."""
        report = self._reports[name]
        if report.lost:
            yield name
        caller = Caller(report.process.instance, report.process.incarnation)
        forgetting = [(server, seen.forgotten) for server, seen in self._seen.get(caller, ()) if seen.forgotten]
        for call in report.made if forgetting else ():
            if self.place(report.process, call).where is Where.UNKNOWN:
                yield from (server for server, forgotten in forgetting if call.number <= forgotten)

    def given_up(self) -> Iterator[tuple[ProcessName, ProcessName, ServedCall]]:
        """Calls that a server has and their caller no longer remembers, with both names; without facts that were taken."""
        made: dict[ProcessName, set[CallNumber]] = {}
        for (caller, number), records in self._served.items():
            source = self._reports.get(caller.process)
            if source is None or source.process.incarnation != caller.incarnation:
                continue
            if number not in made.setdefault(caller.process, {call.number for call in source.made}):
                yield from ((caller.process, server, served) for server, served in records if not served.taken)

    def orphans(self) -> list[Orphan]:
        """Rule 5, the paper's n >= m on every channel: each call seen, or said to be over, that its caller excludes."""
        found = []
        for name in sorted(self._reports):
            for seen in self._reports[name].seen:
                source = self._reports.get(seen.caller.process)
                if source is not None and source.process.incarnation == seen.caller.incarnation:
                    text = _contradiction(name, seen, source)
                    found += [Orphan(name, seen.caller.process, text)] if text else []
        return found


def perhaps_of(missing: Sequence[str]) -> str:
    """What a call waits for that one of the ``missing`` members may have, in words."""
    others = len(missing) - PERHAPS_MAX
    named = [*missing[:PERHAPS_MAX], f"{others} others"] if others > 0 else missing
    return f"a reply, perhaps of {' or '.join(named)} (no report)"


def _contradiction(server: ProcessName, seen: Seen, source: Report) -> str:
    """What a server's memory of a caller says that cannot be, by the caller's own report: a number not yet sent, or a
    floor above a call that is outstanding there.
    """
    caller = seen.caller.process
    if seen.highest >= source.next_number:
        return f"{server} had seen call {seen.highest} of {caller}, which had sent {source.next_number - 1} at its cut"
    if seen.floor and seen.floor > (oldest := min((call.number for call in source.made), default=source.next_number)):
        return f"{server} took calls of {caller} below {seen.floor} for finished, but call {oldest} was outstanding at its cut"
    return ""


def set_aside(orphans: Sequence[Orphan]) -> dict[ProcessName, str]:
    """Whose reports have to go for no contradiction to be left, and why: the most contradicted first, of two the server."""
    left, found = list(orphans), dict[ProcessName, str]()
    while left:
        times = Counter[ProcessName]()
        for orphan in left:
            times.update({orphan.server, orphan.caller})
        servers = {orphan.server for orphan in left}
        worst = min(times, key=lambda name: (-times[name], name not in servers, name))
        found[worst] = next(orphan.text for orphan in left if worst in orphan[:2])
        left = [orphan for orphan in left if worst not in orphan[:2]]
    return found
