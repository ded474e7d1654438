"""Evaluates a snapshot from its records, as a single detector would. Pure: all times come with the records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from detector.assembly.columnar import assembled_as_columns
from detector.assembly.recent import Recent
from detector.assembly.records import Answers, Asked, Header, first_by_process
from detector.core.predicate import Predicate
from detector.core.protocol.assembler import Assembled, PendingSnapshot
from detector.core.registry import PluginError, answered, depends_on_idleness, predicate_or_unusable
from detector.core.scope import views_of
from detector.core.snapshot import Snapshot
from detector.core.verification.past_rounds import NOTHING, Memory
from detector.core.verification.suspicion import Suspicion, idle_of, suspicion_of
from detector.core.verification.verifier import AskLook, RoundEffect, Verified, Verifier
from detector.core.waits.resolved import Resolved
from stilltrue.model import ProcessId, ProcessName, ProcessState, Verdict
from stilltrue.protocol.report import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The verdicts on a snapshot, before membership doubts withhold any; by predicate, then all members before the scopes.

    ``assembled``: the snapshot after its verification rounds. ``memory``: the results of the rounds so far, for the next
    snapshot.
    """

    assembled: Assembled
    verdicts: tuple[Verdict, ...]
    memory: Memory = NOTHING


def is_complete(header: Header, reported: Iterable[ProcessId]) -> bool:
    """Whether all reports that the header names have arrived."""
    return set(header.reported) <= set(reported)


def evaluate(
    header: Header, reports: Iterable[Report], answers: Sequence[Answers], recent: Recent | None = None
) -> Evaluation | Asked:
    """Evaluate a snapshot; returns the looks that are needed first if ``answers`` lacks a round. ``recent`` makes it faster.

    Reports that the header names but that are not in ``reports`` are missing: doubt delays a verdict, never makes one.
    """
    counted = set(header.reported)
    first = {process: report for process, report in first_by_process(reports).items() if process in counted}
    made = assembled(header, first.values(), None if recent is None else recent.resolved(header.fleet))
    if recent is not None:
        recent.keep(header.fleet, made.resolved)
    return _Evaluator(header, answers, first).run(made)


def evaluate_columns(header: Header, records: Sequence[bytes], *, late: bool = False) -> Evaluation | None:
    """Evaluate the records of reports as columns; None if that needs looks, objects or further records.

    ``late``: do not wait for further records.
    """
    made = assembled_as_columns(header, records)
    if made is None or (not late and len(made.absent) > len(header.absent)):
        return None
    found = _Evaluator(header, (), None).run(made)
    return found if isinstance(found, Evaluation) else None


def assembled(header: Header, reports: Iterable[Report], earlier: Resolved | None = None) -> Assembled:
    """Assemble a header and its reports. ``earlier``: the resolved reports of an earlier snapshot, for reuse."""
    members = {process.instance: process for process in (*header.reported, *(member.process for member in header.absent))}
    pending = PendingSnapshot(snapshot=header.snapshot, members=members, begun=header.begun, begun_by=header.begun_by)
    counted = set(header.reported)
    for process, report in first_by_process(reports).items():
        if process in counted:
            pending.offer(report)
    return pending.assembled(header.ended, earlier)


class _NeedsLooksError(Exception):
    """The answers of this round have not arrived yet."""

    def __init__(self, asked: Asked) -> None:
        super().__init__(asked)
        self.asked = asked


class _Evaluator:
    """One evaluation of a snapshot, from the beginning."""

    def __init__(self, header: Header, answers: Sequence[Answers], reports: Mapping[ProcessId, Report] | None) -> None:
        """``reports``: None if they are not decoded to objects, so that looks cannot be applied to them."""
        self._header = header
        self._has_objects = reports is not None
        self._labels = {process.instance: (process.service, report.labels) for process, report in (reports or {}).items()}
        """Includes members whose reports are set aside: their labels are known."""
        self._labels |= {
            member.process.instance: (member.process.service, member.labels)
            for member in header.absent
            if member.labels is not None
        }
        self._answers = {each.round: each for each in reversed(answers)}
        self._rounds = 0
        self._verifier = Verifier(
            give_up_seconds=header.look_give_up_seconds, again_seconds_min=header.look_again_seconds_min, memory=header.memory
        )
        self._further: Assembled | None = None

    def run(self, taken: Assembled) -> Evaluation | Asked:
        try:
            suspicion = suspicion_of(taken.snapshot, with_idle=False)
            looked_at = self._round(taken, suspicion) if suspicion else taken
            verdicts = tuple(self._verdicts(looked_at))
        except _NeedsLooksError as needs:
            return needs.asked
        newest = looked_at if self._further is None else self._further
        return Evaluation(assembled=newest, verdicts=verdicts, memory=self._verifier.memory)

    def _verdicts(self, looked_at: Assembled) -> Iterable[Verdict]:
        made = {name: predicate_or_unusable(name, self._header.settings.get(name)) for name in self._header.predicates}
        views = self._views(looked_at.snapshot)
        for name, predicate in made.items():
            for at, view in enumerate(views):
                verdict = answered(name, predicate, view)
                if _may_depend_on_idleness(predicate, view, verdict):
                    further = self._views(self._idleness(looked_at).snapshot)[at]
                    verdict = answered(name, predicate, further)
                yield verdict

    def _idleness(self, looked_at: Assembled) -> Assembled:
        """The snapshot after the second round, about idleness, which runs at most once."""
        if self._further is None:
            processes = suspicion_of(looked_at.snapshot, with_idle=True).processes
            self._further = self._round(looked_at, Suspicion(processes=processes))
        return self._further

    def _round(self, before: Assembled, suspicion: Suspicion) -> Assembled:
        """Run one round with its answers. Raises :class:`_NeedsLooksError` if they have not arrived."""
        asks: list[AskLook] = []
        ended: list[Assembled] = []

        def collect(effects: Iterable[RoundEffect]) -> None:
            for effect in effects:
                match effect:
                    case AskLook():
                        asks.append(effect)
                    case Verified(assembled=found):
                        ended.append(found)

        self._rounds += 1
        if not self._has_objects:
            raise _NeedsLooksError(Asked(round=self._rounds, asks=()))
        collect(self._verifier.suspected(before, suspicion, self._header.ended))
        if not ended:
            answers = self._answers.get(self._rounds)
            if answers is None:
                raise _NeedsLooksError(Asked(round=self._rounds, asks=tuple(asks)))
            self._apply(asks, answers, collect)
        return ended[0]

    def _apply(self, asks: Sequence[AskLook], answers: Answers, collect: Callable[[Iterable[RoundEffect]], None]) -> None:
        for each in asks:
            name = each.process.instance
            if name in answers.looks:
                collect(self._verifier.looked(each.process, answers.looks[name], answers.at))
            elif name in answers.unable:
                collect(self._verifier.unable(name, answers.unable[name], answers.at, each.request.snapshot))
        collect(self._verifier.ticked(max(answers.at, self._verifier.due()) if self._verifier.in_progress else answers.at))

    def _views(self, snapshot: Snapshot) -> list[Snapshot]:
        absent: dict[ProcessName, ProcessState | None] = dict.fromkeys(snapshot.missing)
        for name in absent.keys() & self._labels.keys():
            service, labels = self._labels[name]
            absent[name] = ProcessState(service=service, labels=labels)
        return views_of(snapshot, self._header.scopes, absent)


def _may_depend_on_idleness(predicate: Predicate, view: Snapshot, verdict: Verdict) -> bool:
    """Whether a TRUE depends on processes that only seem idle; also True if the predicate fails on this question."""
    try:
        return depends_on_idleness(predicate, view, verdict, idle_of(view))
    except PluginError:
        return True
