"""Finds processes that call members but have never joined: their agents cannot reach this detector, or report to another one.

Rules:

1. Members report whose requests they have received, by the caller's stamp. A caller that is no member has called *since* an
   earlier report if a member has meanwhile received a higher number from it. What a first report lists may be long past.
2. A caller is *unjoined* if it has called for longer than a lease without joining: a process that has just started, or that
   ends before it can join, is not. It is forgotten when it joins, or has not called for ``forget_seconds``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from stilltrue.model import CallNumber, ProcessName
from stilltrue.protocol.report import Caller, Report

CALLERS_MAX = 1_000
"""The maximum number of callers that are followed; beyond it, new ones are not."""


@dataclass(slots=True)
class _Calling:
    """A caller that is no member: when it was first reported, when it last called, and its highest number by member."""

    since: float
    called_at: float
    highest: dict[ProcessName, CallNumber] = field(default_factory=dict)


class UnjoinedCallers:
    """The callers of members that are not members. Times are in seconds by the detector's clock."""

    def __init__(self, is_member: Callable[[ProcessName], bool], *, lease_seconds: float, forget_seconds: float) -> None:
        """``is_member``: whether a process of this name is a member, or was one and left."""
        self._is_member = is_member
        self._lease_seconds = lease_seconds
        self._forget_seconds = forget_seconds
        self._calling: dict[Caller, _Calling] = {}

    def reported(self, report: Report, now: float) -> None:
        """Take a member's report (rule 1)."""
        server = report.process.instance
        for seen in report.seen:
            if self._is_member(seen.caller.process):
                continue
            calling = self._calling.get(seen.caller)
            if calling is None:
                self._make_room(now)
                if len(self._calling) >= CALLERS_MAX:
                    return
                calling = self._calling[seen.caller] = _Calling(since=now, called_at=now)
            if seen.highest > calling.highest.setdefault(server, seen.highest):
                calling.highest[server] = seen.highest
                calling.called_at = now

    def found(self, servers: Iterable[ProcessName], now: float) -> list[ProcessName]:
        """The unjoined callers of any of ``servers`` (rule 2), sorted."""
        if not self._calling:
            return []
        self._make_room(now)
        among = frozenset(servers)
        return sorted(
            {
                caller.process
                for caller, calling in self._calling.items()
                if calling.called_at - calling.since > self._lease_seconds and not among.isdisjoint(calling.highest)
            }
        )

    def _make_room(self, now: float) -> None:
        """Forget the callers that have joined, or have not called for long."""
        since = now - self._forget_seconds
        over = [
            caller for caller, calling in self._calling.items() if calling.called_at < since or self._is_member(caller.process)
        ]
        for caller in over:
            del self._calling[caller]
