"""Channels by difference (protocol rule 4): locates each outstanding call from the two ends' cuts alone.

A call outstanding at its caller's cut is *being served* by a party, *queued* behind a pool, its *reply is in transit* (a member
has seen it and none serves it any more), or its *request is in transit* (no member has seen it). Only positive evidence blocks:
a call that no member has seen may be anywhere, so it ends by itself; earlier answers on its channel prove nothing. Anything
uncertain is ``UNKNOWN``: doubt never makes a TRUE.
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

MISSING_NAMED_MAX = 32
"""Number of missing members that a wait names because they may have its call; there may be thousands.

Either all missing members move or none does, so the first few represent all of them.
"""
FOR_WORKER = "a worker for "
"""The prefix of a wait's text for a call that is queued behind a full pool."""


class Where(Enum):
    """The states of an outstanding call."""

    SERVED = "being served"
    QUEUED = "queued"
    REPLY_IN_TRANSIT = "reply in transit"
    REQUEST_IN_TRANSIT = "request in transit"
    MISSING = "perhaps at a missing member"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLocation:
    """Where one call is. It goes on when one of the parties ``among`` moves; by itself, if there are none.

    ``server`` is the process that has it, if known; ``served`` and ``answered`` are that process's records of it. ``repeated``:
    the server may have lost its caller without noticing, with the request in transit to another server (a later look decides).
    ``claims``: several servers claim to have a call that was made once. One claim is right; the others come from a forged
    stamp, or from a proxy that copies requests (a mesh that mirrors traffic).
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
    """A contradiction (protocol rule 5): ``server`` reports what the report of ``caller`` rules out. One of them is wrong."""

    server: ProcessName
    caller: ProcessName
    text: str


@dataclass(frozen=True, slots=True)
class _PoolView:
    """One process's pool at its cut. It is full when each of its workers serves a known party."""

    process: ProcessName
    pool: Pool
    busy: tuple[PartyName, ...]

    @property
    def full(self) -> bool:
        return self.pool.size is not None and len(self.busy) >= self.pool.size

    @property
    def text(self) -> str:
        """The pool and its load, for the text of a wait."""
        queued = f", {self.pool.queued} queued" if self.pool.queued else ""
        return f"{self.process}'s pool {self.pool.name} ({len(self.busy)} of {self.pool.size} busy{queued})"


class Channels:
    """All channels of one snapshot, indexed once from its reports to locate outstanding calls."""

    def __init__(self, reports: Mapping[ProcessName, Report], missing: Sequence[ProcessId]) -> None:
        """``reports`` by process; ``missing``: the members without a report."""
        self._reports = reports
        self._missing = {member.instance: member for member in missing}
        self._served: dict[tuple[Caller, CallNumber], list[tuple[ProcessName, ServedCall]]] = {}
        self._seen: dict[Caller, list[tuple[ProcessName, Seen]]] = {}
        self._pools: dict[tuple[ProcessName, str], _PoolView] = {}
        self.absent = tuple(map(PartyName, sorted(self._missing)[:MISSING_NAMED_MAX]))
        """The missing members that a wait names if it may depend on any of them."""
        self._at_missing = CallLocation(where=Where.MISSING, among=self.absent, what=reply_of_missing(sorted(self._missing)))
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

    def locate(self, process: ProcessId, call: OutstandingCall) -> CallLocation:
        """Locate ``call``, made by ``process``. Records with another method are ignored: stamps passed on (protocol rule 9)."""
        caller = Caller(process.instance, process.incarnation)
        records = [one for one in self._served.get((caller, call.number), []) if one[1].method == call.method]
        heard = [(name, served) for name, served in records if not served.hung_up]
        memories = self._seen.get(caller, ())
        answers = [(name, answer) for name, seen in memories if (answer := seen.answer(call.number)) is not None]
        if heard and not call.hedged:  # if also answered, the stamp was passed on to one of the two servers
            held = self._held(heard, repeated=call.copies_max > 1 or (bool(answers) and call.copies_max > 0))
            if answers and call.facts:
                held = replace(held, answered=answers[-1][1])
            return held if call.copies_max > 1 or len(heard) == 1 else self._contested(held, heard)
        if answers and (call.hedged or call.doubtful) and len(records) + len(answers) < call.copies_max:
            elsewhere = self._maybe_missing() if call.doubtful else None  # a missing member may have answered it, too
            return elsewhere or CallLocation(where=Where.UNKNOWN)  # another copy may still be in transit
        if answers:  # perhaps with a failure, and the next attempt may be at a member that did not report
            elsewhere = self._maybe_missing() if call.copies_max > 1 and not call.doubtful else None
            return elsewhere or CallLocation(where=Where.REPLY_IN_TRANSIT, server=answers[-1][0], answered=answers[-1][1])
        if heard:
            return self._hedged(call, heard, copies=len(records))
        if records or any(call.number <= seen.forgotten for _, seen in memories):
            return self._unknown(call, records)
        return self._unseen(call)

    def _unknown(self, call: OutstandingCall, hung_up: list[tuple[ProcessName, ServedCall]]) -> CallLocation:
        """The server lost its record of the call, or (``hung_up``) its reply cannot arrive: the caller fails or retries."""
        if len(hung_up) == 1 and call.copies_max <= 1:
            return CallLocation(where=Where.UNKNOWN, server=hung_up[0][0], served=hung_up[0][1])
        elsewhere = None if hung_up and call.copies_max <= 1 else self._maybe_missing()
        return elsewhere or CallLocation(where=Where.UNKNOWN)

    def _hedged(self, call: OutstandingCall, records: list[tuple[ProcessName, ServedCall]], *, copies: int) -> CallLocation:
        """Some copies have arrived; up to ``copies_max``, others may be in transit or yet to be sent."""
        held = self._held(records)
        if copies >= call.copies_max or not held.among:
            return held
        other = self._unseen(call)
        what = f"{held.what} or {other.what}" if other.among else ""
        return replace(held, among=held.among + other.among if other.among else (), what=what)

    def _held(self, records: list[tuple[ProcessName, ServedCall]], *, repeated: bool = False) -> CallLocation:
        """Served or queued at one process, or at several (retried, hedged): the call waits for 1 of all of these."""
        among: list[tuple[PartyName, ...]] = []
        texts: list[str] = []
        full: set[tuple[ProcessName, str]] = set()
        for name, served in records:
            if served.serving:
                among.append((served.party,))
                texts.append(f"the reply of {name} to {served.method}")
                continue
            view = self._pools.get((name, served.pool))
            if view is None or not view.full:  # a free or unknown worker may take it at any moment
                return CallLocation(where=Where.QUEUED, server=name, served=served)
            if (name, served.pool) in full:
                continue
            full.add((name, served.pool))
            among.append(view.busy)
            texts.append(f"{FOR_WORKER}{served.method} in {view.text}")
        name, served = records[0]
        where = Where.SERVED if served.serving else Where.QUEUED
        what = " or ".join(texts)
        parties = among[0] if len(among) == 1 else tuple(chain.from_iterable(among))  # one pool's tuple is shared by its queue
        return CallLocation(where=where, among=parties, what=what, server=name, served=served, repeated=repeated)

    def _contested(self, held: CallLocation, records: list[tuple[ProcessName, ServedCall]]) -> CallLocation:
        """A call that can be at one server only, but is claimed by several."""
        return replace(held, claims=tuple(self._held([one]) for one in records))

    def _unseen(self, call: OutstandingCall) -> CallLocation:
        """No reporting member has the call: a missing member may have it, or else it may be anywhere and ends by itself."""
        missing = self._maybe_missing()
        if missing is not None:
            return missing
        return CallLocation(where=Where.UNKNOWN if self._has_lost_a_server(call) else Where.REQUEST_IN_TRANSIT)

    def _maybe_missing(self) -> CallLocation | None:
        """At any of the members without a report; None if there are none."""
        return self._at_missing if self._missing else None

    def _has_lost_a_server(self, call: OutstandingCall) -> bool:
        """Whether a server of the call's channel is gone, perhaps with what the call carried. This only adds doubt."""
        return any(self._incarnation_of(name) != incarnation for name, incarnation in call.servers.items())

    def _incarnation_of(self, name: ProcessName) -> int | None:
        """The incarnation of a member; None for a process that is not a member."""
        if name in self._missing:
            return self._missing[name].incarnation
        report = self._reports.get(name)
        return None if report is None else report.process.incarnation

    def forgetful(self) -> tuple[ProcessName, ...]:
        """The processes that had to forget callers, doubts, or the answer to a call that no other member knows about."""
        return tuple(sorted({name for process in self._reports for name in self.forgetful_for(process)}))

    def forgetful_for(self, name: ProcessName) -> Iterator[ProcessName]:
        """The forgetful processes found from the report of ``name`` and its calls."""
        report = self._reports[name]
        if report.lost:
            yield name
        caller = Caller(report.process.instance, report.process.incarnation)
        forgetting = [(server, seen.forgotten) for server, seen in self._seen.get(caller, ()) if seen.forgotten]
        for call in report.made if forgetting else ():
            if self.locate(report.process, call).where is Where.UNKNOWN:
                yield from (server for server, forgotten in forgetting if call.number <= forgotten)

    def abandoned(self) -> Iterator[tuple[ProcessName, ProcessName, ServedCall]]:
        """(caller, server, call) for each call at a server that its caller no longer remembers, if its facts were not taken."""
        made: dict[ProcessName, set[CallNumber]] = {}
        for (caller, number), records in self._served.items():
            source = self._reports.get(caller.process)
            if source is None or source.process.incarnation != caller.incarnation:
                continue
            if number not in made.setdefault(caller.process, {call.number for call in source.made}):
                yield from ((caller.process, server, served) for server, served in records if not served.taken)

    def orphans(self) -> list[Orphan]:
        """Check protocol rule 5, the paper's n >= m, on every channel: what servers have seen and their callers rule out."""
        found = []
        for name in sorted(self._reports):
            for seen in self._reports[name].seen:
                source = self._reports.get(seen.caller.process)
                if source is not None and source.process.incarnation == seen.caller.incarnation:
                    text = _contradiction(name, seen, source)
                    found += [Orphan(name, seen.caller.process, text)] if text else []
        return found


def reply_of_missing(missing: Sequence[str]) -> str:
    """The text of a wait for a call that any of the ``missing`` members may have."""
    others = len(missing) - MISSING_NAMED_MAX
    named = [*missing[:MISSING_NAMED_MAX], f"{others} others"] if others > 0 else missing
    return f"a reply, perhaps from {' or '.join(named)} (no report)"


def _contradiction(server: ProcessName, seen: Seen, source: Report) -> str:
    """Describe how a server's memory of a caller contradicts the caller's report; empty if it does not.

    Either the server has seen a number not yet sent, or a floor above a call that is outstanding.
    """
    caller = seen.caller.process
    if seen.highest >= source.next_number:
        return f"{server} had seen call {seen.highest} of {caller}, which had sent only {source.next_number - 1} at its cut"
    if seen.floor and seen.floor > (oldest := min((call.number for call in source.made), default=source.next_number)):
        return f"{server} considered calls of {caller} below {seen.floor} over, but call {oldest} was outstanding at its cut"
    return ""


def set_aside(orphans: Sequence[Orphan]) -> dict[ProcessName, str]:
    """Choose the reports to drop so that no contradiction is left, with the reasons.

    The report in most contradictions goes first; in a tie, the server's.
    """
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
