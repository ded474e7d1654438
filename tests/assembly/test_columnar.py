"""A snapshot assembled as columns equals, row by row, the one assembled from objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import pytest

from detector.assembly.columnar import assembled_as_columns
from detector.assembly.evaluation import assembled
from detector.assembly.records import Header, Member, report_record
from detector.core.protocol.assembler import Assembled
from detector.core.waits import columnar
from detector.core.waits.plain_waits import PlainWaits, plain_waits
from detector.core.waits.report_columns import ReportColumns
from detector.simulator import run
from detector.simulator.plans import recipes
from stilltrue.model import Activity, CallNumber, PartyName, ProcessId, ProcessName, SnapshotId, WaitNumber
from stilltrue.protocol.report import (
    OBSERVED_MIN,
    Answered,
    Caller,
    CallerTarget,
    CallTarget,
    Hold,
    LocalWait,
    PartyTarget,
    Report,
    ResourceTarget,
)
from stilltrue.protocol.wire.report import report_from_wire, report_to_wire
from stilltrue.v1 import agent_pb2 as pb
from stilltrue.v1 import snapshot_pb2
from tests.bench.fleet.bodies import Fleet
from tests.core.worlds import remembered
from tests.synthetic.random_snapshots import WorldShape, random_snapshots

BEGUN, ENDED = 1_800_000_000.0, 1_800_000_001.0


def said(found: Assembled) -> list[Any]:
    """All contents of a result, in comparable form."""
    snapshot, waits = found.snapshot, found.snapshot.waits
    return [
        snapshot.ref, list(snapshot.processes.items()), snapshot.in_transit, snapshot.missing, snapshot.forgetful,
        dict(snapshot.doubts), dict(snapshot.set_aside), found.outcome, found.begun_by, found.orphans, dict(found.settled),
        found.absent, waits.names, waits.what,
        *(getattr(waits, name).tolist() for name in ("waiter", "needs", "indptr", "targets", "number", "uncoloured")),
        *(repr(getattr(waits, name).tolist()) for name in ("deadline", "since")),
    ]  # fmt: skip


class Compared:
    """Assembles both ways, and counts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times: Counter[str] = Counter()
        monkeypatch.setattr(columnar, "plain_waits", self._plain_waits)

    def _plain_waits(self, columns: ReportColumns, *, missing: bool) -> PlainWaits | None:
        found = plain_waits(columns, missing=missing)
        if found is not None:
            self.times["processes"] += len(found.plain)
            self.times["plain"] += int(found.plain.sum())
        return found

    def __call__(self, reports: Mapping[ProcessName, Report], missing: Sequence[ProcessId]) -> None:
        sent = [pb.ConnectRequest(report=report_to_wire(replace(report, doubt=""))) for report in reports.values()]
        header = Header(
            fleet="shop", snapshot=SnapshotId(7), begun=BEGUN, ended=ENDED, begun_by="test",
            reported=tuple(report.process for report in reports.values()),
            absent=tuple(Member(process=each) for each in missing),
        )  # fmt: skip
        records = [report_record(each.SerializeToString()) for each in sent]
        found = assembled_as_columns(header, records, members_min=0, rows_share_max=1.0)
        self.times["by columns" if found is not None else "by rows alone"] += 1
        if found is not None:
            by_rows = assembled(header, [report_from_wire(each.report) for each in sent])
            assert said(found) == said(by_rows)
            self.times["waits"] += len(found.snapshot.waits)


@pytest.mark.parametrize("name", sorted(recipes.RECIPES))
def test_worlds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots of the simulator's worlds, and mixtures of their reports that no run would show together."""
    taken = remembered(monkeypatch)
    for seed in range(2):
        run.play(name, seed, processes=9)
    monkeypatch.undo()
    compared, random = Compared(monkeypatch), Random(name)
    for reports, missing in random.sample(taken, min(len(taken), 40)):
        compared(reports, missing)
        others = random.choice(taken)[0]
        compared({process: random.choice((one, others.get(process, one))) for process, one in reports.items()}, missing)
    assert compared.times["by columns"], compared.times


def test_random_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = Compared(monkeypatch)
    for share in (0.0, 0.1):
        for made in random_snapshots(5, 60, WorldShape(processes=12, calls=20, missing_share=share)):
            compared(made.assembled.reports, made.assembled.absent)
    assert compared.times["by columns"] > 10, compared.times
    assert compared.times["waits"] > 50, compared.times


FLEET = Fleet(members=20, entries=3)
Entry = Callable[[Random, Report], Report]


def _one(random: Random, report: Report, of: str, **change: Any) -> Report:
    """The report with one of its calls or waits changed."""
    entries = list(getattr(report, of))
    if not entries:
        return report
    at = random.randrange(len(entries))
    entries[at] = replace(entries[at], **change)
    return _with(report, of, entries)


def _changed(random: Random, report: Report, of: str, change: Mapping[str, Any]) -> Report:
    return _one(random, report, of, **change)


def _with(report: Report, of: str, entries: Sequence[Any]) -> Report:
    change: dict[str, Any] = {of: tuple(entries)}
    return replace(report, **change)


def _targets(random: Random, report: Report) -> Report:
    """A wait for all or one of several targets."""
    name, other = report.process.instance, f"shop-{random.randrange(20):05d}"
    choice = [
        CallTarget(number=random.choice(report.made).number), CallTarget(number=CallNumber(random.randrange(1, 6))),
        PartyTarget(party=PartyName(f"{other}/Put#2")), PartyTarget(party=PartyName(f"{other}/task")),
        PartyTarget(party=PartyName("nobody/x")), CallerTarget(served=PartyName(f"{name}/Put#1")),
        *([ResourceTarget(resource="row 7")] if random.random() < 0.3 else []),
    ]  # fmt: skip
    among = tuple(random.choices(choice, k=random.randrange(1, 4)))
    number = WaitNumber(random.choice((5, OBSERVED_MIN + 5)))
    needs = random.choice((1, len(among)))
    return _one(random, report, "waits", among=among, needs=needs, number=number, what=random.choice(("", "a thing")))


def _remembered(random: Random, report: Report) -> Report:
    """A server's memory of its caller."""
    if not report.seen:
        return report
    number = CallNumber(random.randrange(1, 4))
    changes: list[Mapping[str, Any]] = [
        {"answered": (Answered(number=number, sent=1),)}, {"plain": (number,)}, {"forgotten": number},
        {"floor": CallNumber(2)}, *([{"highest": CallNumber(9)}] if random.random() < 0.1 else []),
    ]  # fmt: skip
    return _one(random, report, "seen", **random.choice(changes))


def _said_twice(random: Random, report: Report) -> Report:
    of = random.choice(("made", "served", "waits"))
    return _with(report, of, [*getattr(report, of), random.choice(getattr(report, of))])


def _awaited_twice(random: Random, report: Report) -> Report:
    """Two parties wait for one call."""
    further = replace(random.choice(report.waits), waiter=random.choice(report.served).party, number=WaitNumber(9))
    return replace(report, waits=tuple(random.sample((*report.waits, further), len(report.waits) + 1)))


def _without(random: Random, report: Report) -> Report:
    of = random.choice(("made", "served", "waits"))
    return _with(report, of, [each for each in getattr(report, of) if random.random() < 0.7])


def _called_by(random: Random, report: Report) -> Report:
    caller = Caller(ProcessName(f"shop-{random.randrange(22):05d}"), random.choice((1, 1, 2)))
    return _one(random, report, "served", caller=random.choice((caller, None)), number=CallNumber(random.randrange(1, 4)))


ONE: list[tuple[str, Mapping[str, Any]]] = [
    ("made", {"deadline": BEGUN + 5}), ("made", {"doubtful": True}), ("made", {"copies_max": 3}),
    ("made", {"hedged": True, "copies_max": 2}), ("made", {"facts": {"token": 1}}), ("made", {"sent": 2}),
    ("made", {"received": 2}), ("made", {"method": "/Other/Call"}), ("made", {"party": None}),
    ("made", {"servers": {ProcessName("shop-00003"): 2}}), ("served", {"deadline": BEGUN + 3}),
    ("served", {"serving": False}), ("served", {"hung_up": True}), ("served", {"sent": 1}), ("served", {"received": 1}),
    ("served", {"taken": True}), ("served", {"interruptible": True}), ("waits", {"deadline": BEGUN + 4}),
    ("waits", {"uncoloured": True}), ("waits", {"what": "a lock"}), ("waits", {"since": None}),
]  # fmt: skip
CHANGES: list[Entry] = [
    _targets, _remembered, _said_twice, _awaited_twice, _without, _called_by,
    *(partial(_changed, of=of, change=change) for of, change in ONE),
    lambda random, report: replace(report, served=tuple(replace(each, interruptible=True) for each in report.served)),
    lambda random, report: replace(report, holds=(Hold(party=report.served[0].party, resource="row 7"),)),
    lambda random, report: replace(report, lost=1),
    lambda random, report: replace(report, facts={"token": random.randrange(3)}),
    lambda random, report: replace(report, cut_at=BEGUN + random.choice((-7, 9))),
    lambda random, report: replace(report, activity=random.choice(list(Activity)), labels={"team": "a"}),
]  # fmt: skip
"""Each goes against one of the rules, or not quite."""


def _fleet(random: Random) -> dict[ProcessName, Report]:
    """Chains of calls with a few changes."""
    reports = {}
    for index in range(FLEET.members):
        report = report_from_wire(snapshot_pb2.Report.FromString(FLEET.report(index, 7, 6)))
        reports[report.process.instance] = replace(report, cut_at=BEGUN + 0.5)
    if random.random() < 0.5:  # handlers that end with their callers
        for name, report in reports.items():
            reports[name] = replace(report, served=tuple(replace(each, interruptible=True) for each in report.served))
    for _ in range(random.randrange(6)):
        name = random.choice(list(reports))
        if reports[name].made and reports[name].served and reports[name].waits:
            reports[name] = random.choice(CHANGES)(random, reports[name])
    return reports


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.longer) for seed in range(1, 4))])
def test_every_condition_of_a_plain_process(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = Compared(monkeypatch)
    for number in range(120):
        random = Random(f"{seed} {number}")
        reports = _fleet(random)
        gone = random.sample(sorted(reports), random.choice((0, 0, 1)))
        missing = [reports.pop(name).process for name in gone]
        compared(reports, missing)
    assert compared.times["by columns"] > 90, compared.times
    assert compared.times["plain"] > compared.times["processes"] / 4, compared.times
    assert compared.times["plain"] < compared.times["processes"], compared.times


def _chain() -> list[Report]:
    """Ten processes; the handler of each ends with its caller."""
    found = []
    for index in range(10):
        report = report_from_wire(snapshot_pb2.Report.FromString(FLEET.report(index, 7, 6)))
        served = tuple(replace(each, interruptible=True) for each in report.served)
        found.append(replace(report, cut_at=BEGUN + 0.5, served=served))
    return found


def _first(report: Report, of: str, **change: Any) -> Report:
    entries = getattr(report, of)
    return _with(report, of, [replace(entries[0], **change), *entries[1:]])


def _of_a_task(chain: list[Report]) -> None:
    """A handler is awaited by another one that its caller may cancel."""
    task = LocalWait(waiter=chain[1].served[1].party, number=OBSERVED_MIN, among=(PartyTarget(party=chain[1].served[0].party),))
    chain[1] = _first(replace(chain[1], waits=(*chain[1].waits, task)), "served", caller=None, number=CallNumber(0))
    chain[0] = _with(chain[0], "made", [chain[0].made[0], replace(chain[0].made[1], deadline=BEGUN + 9), chain[0].made[2]])
    chain[2] = replace(chain[2], made=chain[2].made[:1], served=chain[2].served[:1], waits=chain[2].waits[:1])


def _two_wait(chain: list[Report]) -> None:
    """Two wait for a call, and one of them may be cancelled."""
    further = replace(chain[1].waits[0], waiter=chain[1].waits[1].waiter, number=WaitNumber(9))
    chain[1] = replace(chain[1], waits=(*chain[1].waits, further))
    chain[0] = _first(chain[0], "made", deadline=BEGUN + 9)


def _one_number(chain: list[Report]) -> None:
    """Two calls have the same number, and one of them may end."""
    chain[1] = replace(chain[1], made=(*chain[1].made, replace(chain[1].made[0], deadline=BEGUN + 9)))


def _earlier_run(chain: list[Report]) -> None:
    """A call is served for its caller's former incarnation."""
    chain[2] = _first(chain[2], "served", caller=Caller(chain[1].process.instance, 2))


@pytest.mark.parametrize("case", [_of_a_task, _two_wait, _one_number, _earlier_run])
def test_cancellers_are_resolved_alike(case: Callable[[list[Report]], None], monkeypatch: pytest.MonkeyPatch) -> None:
    chain, compared = _chain(), Compared(monkeypatch)
    compared({report.process.instance: report for report in chain}, [])
    assert compared.times["plain"] == compared.times["processes"]
    case(chain)
    compared({report.process.instance: report for report in chain}, [])
    assert compared.times["by columns"] == 2
