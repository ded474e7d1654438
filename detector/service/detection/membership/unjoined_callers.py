"""Finds processes that call members but are not members: their agents cannot reach this detector, or report to another one.

Rules:

1. Members report whose requests they have received, by the caller's stamp. A caller that is no member has called *since* an
   earlier report if a member has meanwhile received a higher number from it. What a first report lists may be long past.
2. A caller is *unjoined* if it has called for longer than a lease without joining: a process that has just started, or that
   ends before it can join, is not. It is forgotten when it joins, or has not called for ``forget_seconds``.
3. Anybody who can call a member can invent callers, and a service may have thousands that come and go. So the number of those
   followed is bounded, and a report costs one look-up for each caller that it lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from stilltrue.model import CallNumber, ProcessName
from stilltrue.protocol.report import Caller, Report, Seen

CALLERS_MAX = 10_000
"""The number of callers that are followed; beyond it, new ones are not."""
_FORGET_EVERY_SECONDS = 1.0


@dataclass(slots=True)
class _Calling:
    """A caller that is no member: when it was first reported, when it last called, and its highest number by member."""

    since: float
    called_at: float
    highest: dict[ProcessName, CallNumber] = field(default_factory=dict)


class UnjoinedCallers:
    """The callers of members that are not members. Times are in seconds by the detector's clock."""

    def __init__(self, is_member: Callable[[ProcessName], bool], *, lease_seconds: float, forget_seconds: float) -> None:
        """``is_member``: whether a process of this name is a member."""
        self._is_member = is_member
        self._lease_seconds = lease_seconds
        self._forget_seconds = forget_seconds
        self._calling: dict[Caller, _Calling] = {}
        self._unjoined: dict[Caller, _Calling] = {}
        self._newest: dict[ProcessName, tuple[Seen, ...]] = {}
        """By member, what its newest report lists: the same again says nothing new."""
        self._forget_at = float("-inf")

    def reported(self, report: Report, now: float) -> None:
        """Take a member's report (rule 1)."""
        if now >= self._forget_at:
            self._forget_at = now + _FORGET_EVERY_SECONDS
            self._forget(now)
        server = report.process.instance
        if self._newest.get(server) is report.seen:
            return
        self._newest[server] = report.seen
        for seen in report.seen:
            calling = self._calling.get(seen.caller)
            if calling is None:
                if self._is_member(seen.caller.process) or len(self._calling) >= CALLERS_MAX:
                    continue
                calling = self._calling[seen.caller] = _Calling(since=now, called_at=now)
            if seen.highest > calling.highest.setdefault(server, seen.highest):
                calling.highest[server] = seen.highest
                calling.called_at = now
                if now - calling.since > self._lease_seconds:
                    self._unjoined[seen.caller] = calling

    def found(self, servers: Iterable[ProcessName], now: float) -> list[ProcessName]:
        """The unjoined callers of any of ``servers`` (rule 2), sorted."""
        if not self._unjoined:
            return []
        self._forget(now)
        among = frozenset(servers)
        return sorted({caller.process for caller, calling in self._unjoined.items() if not among.isdisjoint(calling.highest)})

    def _forget(self, now: float) -> None:
        """Forget the callers that have joined, or have not called for long, and members that are gone."""
        oldest = now - self._forget_seconds
        for callers in (self._calling, self._unjoined):
            for caller in [
                caller for caller, calling in callers.items() if calling.called_at < oldest or self._is_member(caller.process)
            ]:
                del callers[caller]
        for server in [server for server in self._newest if not self._is_member(server)]:
            del self._newest[server]
