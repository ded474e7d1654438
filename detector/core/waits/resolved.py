"""What a snapshot's reports resolve to, given what the previous snapshot's did: only what has changed is resolved again.

Rules:

1. A report has changed when its parts are other objects: those of equal reports may be shared, as
   :mod:`detector.service.grpc_api.report_reader` does.
2. What comes of a process's own waits and calls (its *part*) depends on its report; on those of the processes that served or
   saw calls of it, or await its tasks; on those of its callers; and on whom these may be cancelled by, upstream
   (:mod:`detector.core.waits.cancellation`).
3. It depends on the incarnations of the servers that the process has called. And on all reports by who is missing, the names of
   facts, and, with waits for resources, the holders: when any of these has changed, everything is resolved anew.
4. So a part is resolved anew among the reports that it depends on alone: :class:`~detector.core.waits.resolution.Resolution` is
   told of these, and says of it what it would say if it were told of all. Tests compare the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter

from detector.core.protocol.clocks import Shifted
from detector.core.waits.channels import Orphan
from detector.core.waits.resolution import Resolution
from detector.graph.columns import WaitColumns
from stilltrue.model import CallNumber, Message, ProcessId, ProcessName, ProcessState, Wait, process_of
from stilltrue.protocol.report import OBSERVED_MIN, CallerTarget, PartyTarget, Report, ResourceTarget

_SHARED = attrgetter("made", "served", "seen", "pools", "waits", "holds", "facts", "labels", "sent_over", "held_up", "activity")
_EQUAL = attrgetter("process", "next_number", "lost")
_Further = Callable[[ProcessName], Iterable[ProcessName]]


@dataclass(frozen=True, slots=True)
class _Links:
    """The processes that a report names: callers, those of them who may end what it does, those it awaits, servers called."""

    callers: frozenset[ProcessName]
    upstream: frozenset[ProcessName]
    awaited: frozenset[ProcessName]
    servers: frozenset[ProcessName]
    wants_resource: bool


@dataclass(frozen=True, slots=True)
class Part:
    """What comes of one process's report, and what it depends on."""

    report: Report
    links: _Links
    state: ProcessState
    waits: tuple[Wait, ...]
    sent: tuple[Message, ...]
    given_up: tuple[Message, ...]
    forgetful: tuple[ProcessName, ...]
    settled: tuple[CallNumber, ...] | None
    orphans: tuple[Orphan, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Resolved:
    """The reports of one snapshot, resolved against each other; if nothing has changed since the last one, the same object."""

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
        """As :meth:`Resolution.settled_doubts`."""
        return {part.report.process: part.settled for part in self.parts.values() if part.settled is not None}


def resolved(reports: Mapping[ProcessName, Report], missing: Sequence[ProcessId], before: Resolved | None = None) -> Resolved:
    """The reports of a snapshot, resolved. ``before``: any earlier result; it makes this faster, and no different."""
    absent = tuple(missing)
    facts = frozenset(fact for report in reports.values() for fact in report.facts)
    if before is None or not _comparable(before, reports, absent, facts):
        parts = parts_of(reports, reports, absent, facts)
        return _joined(absent, facts, parts)
    known = before.parts
    changed = {name for name, report in reports.items() if name not in known or not _same(known[name].report, report)}
    changed.update(known.keys() - reports.keys())
    if not changed:
        return before
    anew, among = _affected(reports, changed, before)
    fresh = parts_of({name: reports[name] for name in sorted(among)}, anew, absent, facts)
    return _joined(absent, facts, {name: fresh[name] if name in fresh else known[name] for name in sorted(reports)})


def _comparable(
    before: Resolved, reports: Mapping[ProcessName, Report], absent: tuple[ProcessId, ...], facts: frozenset[str]
) -> bool:
    """Rule 3, but for the servers."""
    known = before.parts
    if (before.missing, before.facts) != (absent, facts) or (absent and known.keys() != reports.keys()):
        return False
    holds = {name: part.report.holds for name, part in known.items() if part.report.holds}
    return holds == {name: report.holds for name, report in reports.items() if report.holds}


def _same(one: Report, other: Report) -> bool:
    """Rule 1."""
    if one is other:
        return True
    if not all(a is b for a, b in zip(_SHARED(one), _SHARED(other), strict=True)):
        return False
    return bool(_EQUAL(one) == _EQUAL(other))


def _affected(
    reports: Mapping[ProcessName, Report], changed: set[ProcessName], before: Resolved
) -> tuple[set[ProcessName], set[ProcessName]]:
    """Rule 2: whose parts are to be resolved anew, and among which reports."""
    old = {name: part.links for name, part in before.parts.items()}
    links = {name: _links(report) if name in changed else old[name] for name, report in reports.items()}
    of_changed = [each[name] for each in (old, links) for name in changed if name in each]
    named = {name for link in of_changed for name in (*link.callers, *link.awaited)}
    others = {name for name in changed if name not in old or name not in links or _is_other(name, reports, before)}
    below: dict[ProcessName, list[ProcessName]] = {}
    mentions: dict[ProcessName, list[ProcessName]] = {}
    for name, link in links.items():
        for caller in link.upstream:
            below.setdefault(caller, []).append(name)
        for caller in link.callers:
            mentions.setdefault(caller, []).append(name)
    named.update(name for one in changed - links.keys() for name in below.get(one, ()))
    anew = _closed((changed | named) & links.keys(), lambda name: (*below.get(name, ()), *links[name].awaited), links)
    anew.update(name for one in changed for name in mentions.get(one, ()))
    anew.update(name for name, link in links.items() if not others.isdisjoint(link.servers))
    if any(links[name].wants_resource for name in anew):
        return anew, set(links)
    awaiting: dict[ProcessName, list[ProcessName]] = {}
    for name, link in links.items():
        for other in link.awaited:
            awaiting.setdefault(other, []).append(name)
    among = _closed(anew, lambda name: (*links[name].upstream, *awaiting.get(name, ())), links)
    for name in anew:
        among.update(links[name].callers, links[name].servers, mentions.get(name, ()))
    return anew, among & links.keys()


def _is_other(name: ProcessName, reports: Mapping[ProcessName, Report], before: Resolved) -> bool:
    return before.parts[name].report.process != reports[name].process


def _closed(first: Iterable[ProcessName], further: _Further, known: Mapping[ProcessName, _Links]) -> set[ProcessName]:
    """``first``, and all that ``further`` leads to among ``known``."""
    found = set(first)
    todo = list(found)
    while todo:
        for name in further(todo.pop()):
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
    """The parts of ``wanted``, resolved among ``reports`` (rule 4). ``facts``: the names of all that there are."""
    resolution = Resolution(reports, absent)
    settled = resolution.settled_doubts()
    orphans: dict[ProcessName, list[Orphan]] = {}
    for orphan in resolution.channels.orphans():
        orphans.setdefault(orphan.server, []).append(orphan)
    given_up: dict[ProcessName, list[Message]] = {}
    for message in resolution.given_up(facts):
        given_up.setdefault(message.source, []).append(message)
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
            given_up=tuple(given_up.get(name, ())),
            forgetful=tuple(resolution.channels.forgetful_for(name)),
            settled=settled.get(report.process),
            orphans=tuple(orphans.get(name, ())),
        )
    return found


def _joined(absent: tuple[ProcessId, ...], facts: frozenset[str], parts: Mapping[ProcessName, Part]) -> Resolved:
    every = parts.values()
    messages = chain(chain.from_iterable(part.sent for part in every), chain.from_iterable(part.given_up for part in every))
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
