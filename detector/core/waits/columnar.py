"""A snapshot's waits from its reports as columns: those of plain processes at once, those of the others by rows.

Rules:

1. What comes of a process that is not plain is resolved among the reports that it depends on, as rules 2 and 4 of
   :mod:`detector.core.waits.resolved` say. Only these become objects.
2. Where these are most of the fleet, where one of them waits for a resource that a missing member may hold, and where reports
   contradict each other, nothing is found here: all is to be resolved by rows.
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
"""The reports at these positions of the columns, their moments by the detector's clock."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Resolution:
    """As :class:`~detector.core.waits.resolved.Resolved`, without contradictions."""

    waits: WaitColumns
    in_transit: tuple[Message, ...]
    forgetful: tuple[ProcessName, ...]
    settled: Mapping[ProcessId, tuple[CallNumber, ...]]


def resolved_as_columns(
    columns: ReportColumns, decode: Decode, absent: tuple[ProcessId, ...], rows_share_max: float = ROWS_SHARE_MAX
) -> Resolution | None:
    """Resolve them. None: rule 2; ``rows_share_max`` is its share of the fleet."""
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
    among |= links.beside(odd)
    places = {process.instance: at for at, process in enumerate(columns.processes)}
    servers = {name for report in reports.values() for call in report.made for name in call.servers}
    among[[places[name] for name in servers if name in places]] = True
    if among.sum() > most:
        return None
    among[odd] = False
    reports |= decode(np.flatnonzero(among).tolist())
    facts = frozenset(fact for state in columns.states for fact in state.facts)
    names = [columns.processes[at].instance for at in odd.tolist()]
    return parts_of({name: reports[name] for name in sorted(reports)}, names, absent, facts)


class _Links:
    """Which processes name each other."""

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
        """From a process to those on whom its cancellation depends."""
        self._servers = np.concatenate((served.process[served.caller >= 0], seen.process[seen.caller >= 0]))
        self._callers = np.concatenate((served.caller[served.caller >= 0], seen.caller[seen.caller >= 0]))

    def upstream(self, first: Rows) -> Bools:
        """(P,) ``first``, and all on whom the cancellation of one of them depends."""
        found = np.zeros(self._count, np.bool_)
        found[first] = True
        size = 0
        while size < (size := int(found.sum())):
            found[self._to[found[self._from]]] = True
        return found

    def beside(self, odd: Rows) -> Bools:
        """(P,) who calls one of ``odd``, or is called by one."""
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
    given_up = chain.from_iterable(part.given_up for part in parts.values())
    messages = chain(chain.from_iterable(sent[name] for name in sorted(sent)), given_up)
    return Resolution(
        waits=waits,
        in_transit=tuple(sorted(messages, key=attrgetter("source", "what"))),
        forgetful=tuple(sorted({name for part in parts.values() for name in part.forgetful})),
        settled={part.report.process: part.settled for part in parts.values() if part.settled is not None},
    )
