"""Ties a call that no member has seen to the parties that hold up its connection, as both ends report them (rule 4).

Rules:

1. A call can be tied only if no member has seen it, it has one copy and no doubt, and its caller names the connections it may
   use: it is on one of them, or waits for room on one. Each of these must be held up, according to exactly one member.
2. A connection is held up if a party blocks the accepting thread or loop. Both ends have counted the same streams, so the
   server's core has the call (for HTTP, which counts no streams, the server's socket). It is accepted when a party goes on.
3. A connection is held up if it is full. The call is sent when one of the connection's calls ends: when a party that serves one
   goes on, or a party that waits for one and may cancel it. If another party made such a call, it might cancel it, so there is
   no tie.
4. Such a wait is uncoloured. It is certain only once a look at each party has found it unchanged.
5. If more than ``PARTIES_MAX`` parties hold up a connection, there is no tie: thousands of calls might wait for each of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from detector.core.waits.channels import Channels, Where
from stilltrue.model import CallNumber, PartyName, ProcessId, ProcessName
from stilltrue.protocol.report import (
    CallTarget,
    Connection,
    HeldUp,
    LocalWait,
    OutstandingCall,
    PartyTarget,
    Report,
    SentOver,
    ServedCall,
)

PARTIES_MAX = 256
_UNSEEN = (Where.REQUEST_IN_TRANSIT, Where.MISSING)


@dataclass(frozen=True, slots=True)
class _Tie:
    """What a tied call waits for: 1 of ``among``, described by ``what``, until ``deadline``."""

    among: tuple[PartyName, ...]
    what: str
    deadline: float | None = None


def tied(reports: Mapping[ProcessName, Report], missing: Sequence[ProcessId]) -> dict[ProcessName, Report]:
    """Replace waits for tied calls by waits for the parties that hold them up."""
    if not any(report.sent_over for report in reports.values()) or not any(report.held_up for report in reports.values()):
        return dict(reports)
    ties = _Ties(reports, missing)
    return {name: ties.applied_to(report) for name, report in reports.items()}


class _Ties:
    """The ties of one snapshot."""

    def __init__(self, reports: Mapping[ProcessName, Report], missing: Sequence[ProcessId]) -> None:
        self._reports = reports
        self._channels = Channels(reports, missing)
        self._served: dict[PartyName, ServedCall] = {call.party: call for report in reports.values() for call in report.served}
        self._made = {(name, call.number): call for name, report in reports.items() for call in report.made}
        self._waiters: dict[tuple[ProcessName, CallNumber], list[PartyName]] = {}
        for name, report in reports.items():
            for wait in report.waits:
                for target in dict.fromkeys(wait.among):
                    if isinstance(target, CallTarget):
                        self._waiters.setdefault((name, target.number), []).append(wait.waiter)
        self._known: dict[Connection, _Tie | None] = {}
        self._held: dict[str, list[tuple[ProcessName, HeldUp]]] = {}
        for name in sorted(reports):
            for held in reports[name].held_up:
                self._held.setdefault(held.connection.name, []).append((name, held))

    def applied_to(self, report: Report) -> Report:
        """``report`` with its waits for tied calls replaced."""
        sent = {one.call: one for one in report.sent_over}
        found = {
            call.number: tie
            for call in report.made
            if call.number in sent and (tie := self._tie(report, call, sent[call.number])) is not None
        }
        if not found:
            return report
        return replace(report, waits=tuple(one for wait in report.waits for one in _waits(wait, found)))

    def _tie(self, report: Report, call: OutstandingCall, sent: SentOver) -> _Tie | None:
        """The tie of one call (rule 1)."""
        if call.doubtful or call.hedged or call.copies_max > 1 or not sent.connections:
            return None
        if self._channels.locate(report.process, call).where not in _UNSEEN:
            return None
        ties = [self._tie_of(connection) for connection in sent.connections]
        known = [tie for tie in ties if tie is not None]
        if len(known) < len(ties):
            return None
        among = tuple(dict.fromkeys(party for tie in known for party in tie.among))
        if len(among) > PARTIES_MAX:
            return None
        ends = [call.deadline, *(tie.deadline for tie in known)]
        what = " or ".join(dict.fromkeys(tie.what for tie in known))
        return _Tie(
            among, f"the reply to {call.method}, held up by {what}", min((e for e in ends if e is not None), default=None)
        )

    def _tie_of(self, connection: Connection) -> _Tie | None:
        """The tie of one connection (rule 5), cached: thousands of calls may use it."""
        if connection not in self._known:
            tie = self._held_up(connection)
            self._known[connection] = None if tie is None or len(tie.among) > PARTIES_MAX else tie
        return self._known[connection]

    def _held_up(self, connection: Connection) -> _Tie | None:
        """The parties that hold up a connection, as its other end reports them."""
        reported = self._held.get(connection.name, [])
        if len({name for name, _ in reported}) != 1:
            return None
        for _, held in reported:
            other = held.connection
            if other.ended != connection.ended or other.begun > connection.begun:
                continue
            if not held.full and other.begun == connection.begun:  # rule 2
                return _Tie(held.parties, held.what)
            if held.full:
                tie = self._full(held)
                if tie is not None:
                    return tie
        return None

    def _full(self, held: HeldUp) -> _Tie | None:
        """The tie of a full connection (rule 3)."""
        among: list[PartyName] = list(held.parties)
        ends: list[float] = []
        if len(among) > PARTIES_MAX:
            return None
        for party in held.parties:
            served = self._served.get(party)
            if served is None or served.hung_up:
                return None
            callers = self._callers(served)
            if not callers:
                return None
            among += callers
            ends += [served.deadline] if served.deadline is not None else []
        return _Tie(tuple(dict.fromkeys(among)), held.what, min(ends, default=None))

    def _callers(self, served: ServedCall) -> list[PartyName]:
        """The parties that may cancel a call: the one that made it and those that wait for it; empty if unknown.

        Any other party that may cancel it is found only by the look at a party that waits for it.
        """
        source = None if served.caller is None else self._reports.get(served.caller.process)
        if source is None or served.caller is None or source.process.incarnation != served.caller.incarnation:
            return []
        call = self._made.get((served.caller.process, served.number))
        if call is None or call.doubtful:
            return []
        waiters = self._waiters.get((served.caller.process, call.number), [])[: PARTIES_MAX + 1]
        return waiters if call.party is None or not waiters else [call.party, *waiters]


def _waits(wait: LocalWait, ties: Mapping[CallNumber, _Tie]) -> Iterator[LocalWait]:
    """Replace the tied calls of a wait by parties (rule 4)."""
    known = {target: ties[target.number] for target in wait.among if isinstance(target, CallTarget) and target.number in ties}
    if not known:
        yield wait
    elif wait.needs == len(wait.among):  # each is a separate wait, and all must end
        for target in wait.among:
            yield (
                _for(replace(wait, needs=1, among=()), known[target])
                if target in known
                else replace(wait, needs=1, among=(target,))
            )
    elif wait.needs == 1:
        others = tuple(target for target in wait.among if target not in known)
        parties = tuple(dict.fromkeys(party for tie in known.values() for party in tie.among))
        among = (*others, *(PartyTarget(party=party) for party in parties))
        ends = [tie.deadline for tie in known.values() if tie.deadline is not None]
        yield replace(wait, among=among, uncoloured=True).ending(min(ends, default=None))
    else:
        yield wait


def _for(wait: LocalWait, tie: _Tie) -> LocalWait:
    among = tuple(PartyTarget(party=party) for party in tie.among)
    return replace(wait, among=among, uncoloured=True, what=tie.what).ending(tie.deadline)
