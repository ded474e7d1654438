"""Resolves a snapshot's waits from columns of reports: plain processes all at once, the others row by row.

Rules:

1. A process that is not plain is resolved among the reports that it depends on (rules 2 and 4 of
   :mod:`detector.core.waits.resolved`). Only these become objects.
2. Nothing is resolved here, and everything must be resolved row by row, if these reports are most of the fleet, if one of these
   processes waits for a resource that a missing member may hold, or if reports contradict each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter

import numpy as np

from detector.core.waits.plain_waits import PlainWaits, plain_waits
from detector.core.waits.report_columns import OTHER, PARTY, ReportColumns, Rows
from detector.core.waits.resolved import Part, parts_of
from detector.graph.columns import Bools, WaitColumns, columns_of_lists
from stilltrue.model import CallNumber, Message, ProcessId, ProcessName
from stilltrue.protocol.report import OBSERVED_MIN, Report, ResourceTarget

ROWS_SHARE_MAX = 0.5

Decode = Callable[[Sequence[int]], Mapping[ProcessName, Report]]
"""Returns the reports at these positions of the columns, with times by the detector's clock."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Resolution:
    """Like :class:`~detector.core.waits.resolved.Resolved`, but without contradictions."""

    waits: WaitColumns
    in_transit: tuple[Message, ...]
    forgetful: tuple[ProcessName, ...]
    settled: Mapping[ProcessId, tuple[CallNumber, ...]]


def resolved_as_columns(
    columns: ReportColumns, decode: Decode, absent: tuple[ProcessId, ...], rows_share_max: float = ROWS_SHARE_MAX
) -> Resolution | None:
    """Resolve the reports; None if rule 2 applies. ``rows_share_max``: the share of the fleet that counts as most of it."""
    found = plain_waits(columns, missing=bool(absent))
    if found is None:
        return None
    odd = np.flatnonzero(~found.plain)
    parts = _by_rows(columns, odd, decode, absent, rows_share_max) if len(odd) else {}
    return None if parts is None else _joined(found, parts)


def _by_rows(
    columns: ReportColumns, odd: Rows, decode: Decode, absent: tuple[ProcessId, ...], share_max: float
) -> Mapping[ProcessName, Part] | None:
    """Rule 1."""
    most = share_max * len(columns.processes)
    links = _Links(columns)
    among = links.upstream(odd)
    if among.sum() > most:
        return None
    reports = dict(decode(odd.tolist()))
    if any(isinstance(target, ResourceTarget) for each in reports.values() for wait in each.waits for target in wait.among):
        if absent:
            return None
        among |= columns.holding
    among |= links.adjacent(odd)
    positions = {process.instance: at for at, process in enumerate(columns.processes)}
    servers = {name for report in reports.values() for call in report.made for name in call.servers}
    among[[positions[name] for name in servers if name in positions]] = True
    if among.sum() > most:
        return None
    among[odd] = False
    reports |= decode(np.flatnonzero(among).tolist())
    facts = frozenset(fact for state in columns.states for fact in state.facts)
    names = [columns.processes[at].instance for at in odd.tolist()]
    return parts_of({name: reports[name] for name in sorted(reports)}, names, absent, facts)


class _Links:
    """The links between processes that name each other in their reports."""

    def __init__(self, columns: ReportColumns) -> None:
        served, seen, waits = columns.served, columns.seen, columns.waits
        self._count = len(columns.processes)
        reads = np.zeros(self._count, np.bool_)
        reads[waits.process[waits.wait[waits.kind == OTHER]]] = True
        above = (served.caller >= 0) & (served.interruptible | reads[served.process])
        tasks = (waits.kind == PARTY) & (waits.number >= OBSERVED_MIN)[waits.wait]
        awaited = np.where(tasks, columns.owner[np.where(tasks, waits.target, 0)], -1) if len(columns.names) else waits.target
        tasks &= awaited >= 0
        self._from = np.concatenate((served.process[above], awaited[tasks]))
        self._to = np.concatenate((served.caller[above], waits.process[waits.wait[tasks]]))
        """Links from a process to those that its cancellation depends on."""
        self._servers = np.concatenate((served.process[served.caller >= 0], seen.process[seen.caller >= 0]))
        self._callers = np.concatenate((served.caller[served.caller >= 0], seen.caller[seen.caller >= 0]))

    def upstream(self, first: Rows) -> Bools:
        """(P,) mask of ``first`` and all processes that their cancellation depends on."""
        found = np.zeros(self._count, np.bool_)
        found[first] = True
        size = 0
        while size < (size := int(found.sum())):
            found[self._to[found[self._from]]] = True
        return found

    def adjacent(self, odd: Rows) -> Bools:
        """(P,) mask of the processes that call one of ``odd``, or are called by one."""
        found = np.zeros(self._count, np.bool_)
        inside = found.copy()
        inside[odd] = True
        found[self._callers[inside[self._servers]]] = True
        found[self._servers[inside[self._callers]]] = True
        return found


def _joined(found: PlainWaits, parts: Mapping[ProcessName, Part]) -> Resolution:
    rows = [wait for part in parts.values() for wait in part.waits]
    waits = columns_of_lists(
        waiters=found.waiters + [row.waiter for row in rows],
        needs=[1] * len(found.waiters) + [row.needs for row in rows],
        sizes=[1] * len(found.waiters) + [len(row.among) for row in rows],
        among=found.among + list(chain.from_iterable(row.among for row in rows)),
        deadline=found.deadline + [np.nan if row.deadline is None else row.deadline for row in rows],
        since=found.since + [np.nan if row.since is None else row.since for row in rows],
        number=found.number + [-1 if row.number is None else row.number for row in rows],
        uncoloured=[False] * len(found.waiters) + [row.uncoloured for row in rows],
        what=found.what + [row.what for row in rows],
    )
    sent = {name: part.sent for name, part in parts.items()} | found.unseen
    abandoned = chain.from_iterable(part.abandoned for part in parts.values())
    messages = chain(chain.from_iterable(sent[name] for name in sorted(sent)), abandoned)
    return Resolution(
        waits=waits,
        in_transit=tuple(sorted(messages, key=attrgetter("source", "what"))),
        forgetful=tuple(sorted({name for part in parts.values() for name in part.forgetful})),
        settled={part.report.process: part.settled for part in parts.values() if part.settled is not None},
    )
