"""Resolves a snapshot's reports incrementally: only what has changed since the previous snapshot is resolved again.

Rules:

1. A report has changed if its parts are different objects; :mod:`detector.service.grpc_api.report_reader` shares equal parts.
2. The result for one process (its *part*) depends on its report, on the reports of its callers and of the processes that served
   or saw its calls or await its tasks, and on those of the callers further upstream that may cancel these
   (:mod:`detector.core.waits.cancellation`).
3. It also depends on the incarnations of the servers that the process has called; and on all reports through the set of missing
   members, the names of facts and, for waits for resources, the holders. If one of these last has changed, everything is
   resolved again.
4. So a changed part is resolved among only the reports that it depends on. :class:`~detector.core.waits.resolution.Resolution`
   gives the same result for it as among all reports. Tests compare the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter

from detector.core.protocol.clock_offsets import Shifted
from detector.core.waits.channels import Orphan
from detector.core.waits.resolution import Resolution
from detector.graph.columns import WaitColumns
from stilltrue.model import CallNumber, Message, ProcessId, ProcessName, ProcessState, Wait, process_of
from stilltrue.protocol.report import OBSERVED_MIN, CallerTarget, PartyTarget, Report, ResourceTarget

_SHARED = attrgetter("made", "served", "seen", "pools", "waits", "holds", "facts", "labels", "sent_over", "held_up", "activity")
_EQUAL = attrgetter("process", "next_number", "lost")
_Neighbours = Callable[[ProcessName], Iterable[ProcessName]]


@dataclass(frozen=True, slots=True)
class _Links:
    """The processes that a report names. ``upstream``: the callers that its cancellation may depend on."""

    callers: frozenset[ProcessName]
    upstream: frozenset[ProcessName]
    awaited: frozenset[ProcessName]
    servers: frozenset[ProcessName]
    wants_resource: bool


@dataclass(frozen=True, slots=True)
class Part:
    """The resolved report of one process, and what it depends on."""

    report: Report
    links: _Links
    state: ProcessState
    waits: tuple[Wait, ...]
    sent: tuple[Message, ...]
    abandoned: tuple[Message, ...]
    forgetful: tuple[ProcessName, ...]
    settled: tuple[CallNumber, ...] | None
    orphans: tuple[Orphan, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Resolved:
    """The reports of one snapshot, resolved against each other; the same object as the last one if nothing has changed."""

    missing: tuple[ProcessId, ...]
    facts: frozenset[str]
    parts: Mapping[ProcessName, Part]
    states: Mapping[ProcessName, ProcessState]
    waits: WaitColumns
    in_transit: tuple[Message, ...]
    forgetful: tuple[ProcessName, ...]
    shifted: Mapping[ProcessName, Shifted] = field(default_factory=dict, repr=False)
    """The reports whose clocks were wrong."""

    def orphans(self) -> list[Orphan]:
        """The contradictions (rule 5 of docs/design.md), by the process that saw them."""
        return [orphan for part in self.parts.values() for orphan in part.orphans]

    def settled(self) -> dict[ProcessId, tuple[CallNumber, ...]]:
        """Like :meth:`Resolution.settled_doubts`."""
        return {part.report.process: part.settled for part in self.parts.values() if part.settled is not None}


def resolved(reports: Mapping[ProcessName, Report], missing: Sequence[ProcessId], before: Resolved | None = None) -> Resolved:
    """Resolve the reports of a snapshot. ``before``: any earlier result; it only makes this faster."""
    absent = tuple(missing)
    facts = frozenset(fact for report in reports.values() for fact in report.facts)
    if before is None or not _comparable(before, reports, absent, facts):
        parts = parts_of(reports, reports, absent, facts)
        return _combined(absent, facts, parts)
    known = before.parts
    changed = {name for name, report in reports.items() if name not in known or not _same(known[name].report, report)}
    changed.update(known.keys() - reports.keys())
    if not changed:
        return before
    stale, among = _affected(reports, changed, before)
    fresh = parts_of({name: reports[name] for name in sorted(among)}, stale, absent, facts)
    return _combined(absent, facts, {name: fresh[name] if name in fresh else known[name] for name in sorted(reports)})


def _comparable(
    before: Resolved, reports: Mapping[ProcessName, Report], absent: tuple[ProcessId, ...], facts: frozenset[str]
) -> bool:
    """Whether ``before`` can be reused at all (rule 3, except for the servers)."""
    known = before.parts
    if (before.missing, before.facts) != (absent, facts) or (absent and known.keys() != reports.keys()):
        return False
    holds = {name: part.report.holds for name, part in known.items() if part.report.holds}
    return holds == {name: report.holds for name, report in reports.items() if report.holds}


def _same(one: Report, other: Report) -> bool:
    """Whether a report is unchanged (rule 1)."""
    if one is other:
        return True
    if not all(a is b for a, b in zip(_SHARED(one), _SHARED(other), strict=True)):
        return False
    return bool(_EQUAL(one) == _EQUAL(other))


def _affected(
    reports: Mapping[ProcessName, Report], changed: set[ProcessName], before: Resolved
) -> tuple[set[ProcessName], set[ProcessName]]:
    """The processes whose parts must be resolved again (rule 2), and the processes whose reports that takes."""
    old = {name: part.links for name, part in before.parts.items()}
    links = {name: _links(report) if name in changed else old[name] for name, report in reports.items()}
    of_changed = [each[name] for each in (old, links) for name in changed if name in each]
    named = {name for link in of_changed for name in (*link.callers, *link.awaited)}
    replaced = {name for name in changed if name not in old or name not in links or _was_replaced(name, reports, before)}
    below: dict[ProcessName, list[ProcessName]] = {}
    mentions: dict[ProcessName, list[ProcessName]] = {}
    for name, link in links.items():
        for caller in link.upstream:
            below.setdefault(caller, []).append(name)
        for caller in link.callers:
            mentions.setdefault(caller, []).append(name)
    named.update(name for one in changed - links.keys() for name in below.get(one, ()))
    stale = _reachable((changed | named) & links.keys(), lambda name: (*below.get(name, ()), *links[name].awaited), links)
    stale.update(name for one in changed for name in mentions.get(one, ()))
    stale.update(name for name, link in links.items() if not replaced.isdisjoint(link.servers))
    if any(links[name].wants_resource for name in stale):
        return stale, set(links)
    awaiting: dict[ProcessName, list[ProcessName]] = {}
    for name, link in links.items():
        for other in link.awaited:
            awaiting.setdefault(other, []).append(name)
    among = _reachable(stale, lambda name: (*links[name].upstream, *awaiting.get(name, ())), links)
    for name in stale:
        among.update(links[name].callers, links[name].servers, mentions.get(name, ()))
    return stale, among & links.keys()


def _was_replaced(name: ProcessName, reports: Mapping[ProcessName, Report], before: Resolved) -> bool:
    return before.parts[name].report.process != reports[name].process


def _reachable(first: Iterable[ProcessName], neighbours: _Neighbours, known: Mapping[ProcessName, _Links]) -> set[ProcessName]:
    """``first`` and all processes in ``known`` that are reachable from it through ``neighbours``."""
    found = set(first)
    todo = list(found)
    while todo:
        for name in neighbours(todo.pop()):
            if name in known and name not in found:
                found.add(name)
                todo.append(name)
    return found


def parts_of(
    reports: Mapping[ProcessName, Report],
    wanted: Iterable[ProcessName],
    absent: tuple[ProcessId, ...],
    facts: frozenset[str],
) -> dict[ProcessName, Part]:
    """Resolve the parts of ``wanted`` among ``reports`` (rule 4). ``facts``: the names of all facts in the snapshot."""
    resolution = Resolution(reports, absent)
    settled = resolution.settled_doubts()
    orphans: dict[ProcessName, list[Orphan]] = {}
    for orphan in resolution.channels.orphans():
        orphans.setdefault(orphan.server, []).append(orphan)
    abandoned: dict[ProcessName, list[Message]] = {}
    for message in resolution.abandoned(facts):
        abandoned.setdefault(message.source, []).append(message)
    found = {}
    for name in sorted(wanted):
        report = reports[name]
        found[name] = Part(
            report=report,
            links=_links(report),
            state=ProcessState(
                activity=report.activity, facts=report.facts, service=report.process.service, labels=report.labels
            ),
            waits=tuple(resolution.waits_of(name)),
            sent=tuple(resolution.sent_by(name)),
            abandoned=tuple(abandoned.get(name, ())),
            forgetful=tuple(resolution.channels.forgetful_for(name)),
            settled=settled.get(report.process),
            orphans=tuple(orphans.get(name, ())),
        )
    return found


def _combined(absent: tuple[ProcessId, ...], facts: frozenset[str], parts: Mapping[ProcessName, Part]) -> Resolved:
    every = parts.values()
    messages = chain(chain.from_iterable(part.sent for part in every), chain.from_iterable(part.abandoned for part in every))
    return Resolved(
        missing=absent,
        facts=facts,
        parts=parts,
        states={name: part.state for name, part in parts.items()},
        waits=WaitColumns.of(chain.from_iterable(part.waits for part in every)),
        in_transit=tuple(sorted(messages, key=attrgetter("source", "what"))),
        forgetful=tuple(sorted({name for part in every for name in part.forgetful})),
    )


def _links(report: Report) -> _Links:
    served = [(call.caller.process, call.interruptible) for call in report.served if call.caller is not None]
    targets = [(wait, target) for wait in report.waits for target in wait.among]
    reads = any(isinstance(target, CallerTarget) for _, target in targets)
    return _Links(
        callers=frozenset(chain((name for name, _ in served), (seen.caller.process for seen in report.seen))),
        upstream=frozenset(name for name, interruptible in served if interruptible or reads),
        awaited=frozenset(
            process_of(target.party)
            for wait, target in targets
            if isinstance(target, PartyTarget) and wait.number >= OBSERVED_MIN
        ),
        servers=frozenset(name for call in report.made for name in call.servers),
        wants_resource=any(isinstance(target, ResourceTarget) for _, target in targets),
    )
