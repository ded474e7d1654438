"""Incremental resolution gives the same result as resolving all reports, in every world and under random changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from random import Random
from typing import Any

import pytest

from detector.core.protocol import assembler
from detector.core.verification.amendment import amended
from detector.core.verification.reassembly import Reassembly
from detector.core.waits.resolved import Resolved, resolved
from detector.simulator import run
from detector.simulator.plans import recipes
from stilltrue.model import UNKNOWN_FACT, CallNumber, PartyName, ProcessId, ProcessName, SnapshotId, WaitNumber
from stilltrue.protocol.report import Caller, CallTarget, LocalWait, OutstandingCall, Report, ServedCall
from stilltrue.protocol.requests.look import PartyLook
from tests.core.worlds import remembered

WORLDS = 4
PROCESSES = 9


def shared(report: Report, before: Report | None) -> Report:
    """The report with equal parts shared with the previous one, as the detector reads it."""
    if before is None:
        return report
    same: dict[str, Any] = {
        each.name: known
        for each in fields(Report)
        if (known := getattr(before, each.name)) == getattr(report, each.name) and each.name not in {"seen", "doubt"}
    }
    if [(one, one.floor) for one in report.seen] == [(one, one.floor) for one in before.seen]:
        same["seen"] = before.seen
    return replace(report, **same)


def said(found: Resolved) -> list[Any]:
    """The whole result, in comparable form."""
    waits = found.waits
    return [
        found.missing, found.facts, dict(found.states), list(found.states), found.in_transit, found.forgetful,
        found.orphans(), found.settled(), waits.names, waits.what,
        *(getattr(waits, name).tolist() for name in ("waiter", "needs", "indptr", "targets", "number", "uncoloured")),
        *(repr(getattr(waits, name).tolist()) for name in ("deadline", "since")),
    ]  # fmt: skip


class Compared:
    """Replaces :func:`resolved`: resolves incrementally and from scratch, and compares."""

    def __init__(self) -> None:
        self.kept = self.anew = 0

    def __call__(
        self, reports: Mapping[ProcessName, Report], missing: Sequence[ProcessId], before: Resolved | None = None
    ) -> Resolved:
        known = {} if before is None else {name: part.report for name, part in before.parts.items()}
        ours = {name: shared(report, known.get(name)) for name, report in reports.items()}
        found, plain = resolved(ours, missing, before), resolved(reports, missing)
        assert said(found) == said(plain)
        kept = sum(before is not None and part is before.parts.get(name) for name, part in found.parts.items())
        self.kept += kept
        self.anew += len(found.parts) - kept
        return found


@pytest.mark.parametrize("name", sorted(recipes.RECIPES))
def test_worlds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = Compared()
    monkeypatch.setattr(assembler, "resolved", compared)
    for seed in range(WORLDS):
        assert run.play(name, seed, processes=PROCESSES).breaches == ()
    assert compared.kept > compared.anew / 20, "next to nothing was taken from the snapshot before"


@pytest.mark.parametrize("name", sorted(recipes.RECIPES))
def test_reports_of_different_times_side_by_side(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random mixtures of a world's reports, including ones that no run would show together; one report changes at a time."""
    taken = remembered(monkeypatch)
    compared, random = Compared(), Random(name)
    for seed in range(3):
        taken.clear()
        run.play(name, seed, processes=PROCESSES)
        reports, missing = max(taken, key=lambda each: len(each[0]))
        now, absent = dict(reports), {member.instance for member in missing}
        found = compared(now, missing)
        for _ in range(60):
            some = random.choice(taken)[0]
            changing = random.choice(sorted(reports))
            if changing in some and changing not in absent:  # also another incarnation, and one that had left
                now[changing] = some[changing]
            elif random.random() < 0.5:
                now.pop(changing, None)
            found = compared(now, missing, found)
    assert compared.kept > compared.anew


def test_an_unchanged_snapshot_is_the_same_object() -> None:
    report = link(0, waits=True, what="")
    before = resolved({report.process.instance: report}, [])
    again = replace(report, snapshot=SnapshotId(2), cut_at=2.0, after=SnapshotId(1), happenings=7)
    assert resolved({report.process.instance: again}, [], before) is before
    assert resolved({report.process.instance: replace(again, lost=1)}, [], before).forgetful == ("p0",)


def link(at: int, *, waits: bool, what: str) -> Report:
    """One of a chain of processes: each serves the previous one, may be cancelled by it, and calls the next one."""
    name = ProcessName(f"p{at}")
    party = PartyName(f"{name}/1")
    served = ServedCall(
        party=party, method="/S/M", caller=Caller(ProcessName(f"p{at - 1}"), 1), number=CallNumber(1), serving=True,
        interruptible=True,
    )  # fmt: skip
    wait = LocalWait(waiter=party, number=WaitNumber(1), among=(CallTarget(number=CallNumber(1)),), what=what)
    return Report(
        process=ProcessId(service="s", instance=name, incarnation=1), snapshot=SnapshotId(1), after=SnapshotId(0), cut_at=1.0,
        next_number=CallNumber(2), made=(OutstandingCall(number=CallNumber(1), method="/S/M", party=party),),
        served=(served,) if at else (), waits=(wait,) if waits else (),
    )  # fmt: skip


def test_cancellers_far_upstream_are_resolved_again() -> None:
    random, compared = Random(5), Compared()
    reports = {ProcessName(f"p{at}"): link(at, waits=True, what="") for at in range(7)}
    found = compared(reports, [])
    for turn in range(200):
        at = random.randrange(7)
        reports[ProcessName(f"p{at}")] = link(at, waits=random.random() < 0.8, what=str(turn))
        if random.random() < 0.2:
            del reports[ProcessName(f"p{at}")]
        found = compared(reports, [], found)
    assert compared.kept > compared.anew / 20


def test_a_server_that_is_gone_may_have_taken_a_calls_facts() -> None:
    call = OutstandingCall(number=CallNumber(1), method="/S/M", servers={ProcessName("p1"): 1}, facts={"token": 1})
    caller = replace(link(0, waits=False, what=""), made=(call,))
    server = replace(link(1, waits=False, what=""), served=(), made=())
    compared, both = Compared(), {ProcessName("p0"): caller, ProcessName("p1"): server}
    before = compared(both, [])
    alone = compared({ProcessName("p0"): caller}, [], before)
    assert [message.facts for found in (before, alone) for message in found.in_transit] == [
        {"token": 1},
        {"token": UNKNOWN_FACT},
    ]


def test_an_equal_amendment_is_the_same_object_and_any_other_is_not() -> None:
    rounds = Reassembly()
    parties = [PartyName("p0/1"), PartyName("p1/1")]
    looks = {party: PartyLook(party=party, unchanged=True, doubt="it was not looked at") for party in parties}

    def found(number: int, looks: Mapping[PartyName, PartyLook]) -> assembler.Assembled:
        reports = {ProcessName(f"p{at}"): link(at, waits=True, what="") for at in range(3)}
        pending = assembler.PendingSnapshot(
            snapshot=SnapshotId(number), members={name: one.process for name, one in reports.items()}, begun=1.0, begun_by="ask"
        )
        for report in reports.values():
            assert pending.offer(report) is None
        before = pending.assembled(2.0)
        return rounds.of(before, amended(before.reports, looks), looks)

    first, again = found(1, looks), found(2, looks)
    assert first.snapshot.ref != again.snapshot.ref
    assert first.resolved is not None
    assert again.resolved is not None
    assert again.resolved.parts[ProcessName("p0")].waits == first.resolved.parts[ProcessName("p0")].waits
    assert again.reports[ProcessName("p0")].waits is first.reports[ProcessName("p0")].waits
    other = found(3, {party: replace(look, doubt="") for party, look in looks.items()})
    assert other.snapshot.waits.uncoloured.tolist() != again.snapshot.waits.uncoloured.tolist()
