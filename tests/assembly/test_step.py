"""Records of a snapshot in any order, duplicated or incomplete: the same result, or none yet."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from detector.assembly.records import (
    Answers,
    Asked,
    Header,
    Member,
    answers_record,
    header_of,
    header_record,
    report_record,
)
from detector.assembly.results import Result, message_of
from detector.assembly.step import Step, step
from detector.core.protocol.assembler import Assembled
from detector.spark.assembly.recent import RecentReports
from stilltrue.model import Holds, ProcessId, SnapshotId
from stilltrue.protocol.requests.look import Look, PartyLook
from stilltrue.protocol.wire.report import report_to_wire
from stilltrue.v1 import agent_pb2 as pb
from tests.synthetic.random_snapshots import WorldShape, random_snapshots

MADE = list(random_snapshots(11, 30, WorldShape(processes=5, calls=10, missing_share=0.1)))
PREDICATES = ("deadlock", "gridlock", "termination")


def _header(assembled: Assembled, **more: object) -> Header:
    ref = assembled.snapshot.ref
    values = {
        "fleet": "shop", "snapshot": ref.id, "begun": ref.begun, "ended": ref.ended, "begun_by": assembled.begun_by,
        "reported": tuple(report.process for report in assembled.reports.values()),
        "absent": tuple(Member(process=process, labels={"team": "a"}) for process in assembled.absent),
        "predicates": PREDICATES,
    }  # fmt: skip
    return Header(**values | more)  # type: ignore[arg-type]


def _records(assembled: Assembled, **more: object) -> list[bytes]:
    reports = [pb.ConnectRequest(report=report_to_wire(report)) for report in assembled.reports.values()]
    return [header_record(_header(assembled, **more)), *(report_record(each.SerializeToString()) for each in reports)]


def _answers(asked: Asked) -> bytes:
    """All processes look, and find their parties unchanged."""
    looks = {
        each.process.instance: Look(
            snapshot=each.request.snapshot,
            parties=tuple(PartyLook(party=suspect.party, unchanged=True) for suspect in each.request.suspects),
        )
        for each in asked.asks
    }
    return answers_record(Answers(round=asked.round, at=1_800_000_000.0, looks=looks))


def _ended(records: list[bytes], shuffle: Random | None = None) -> tuple[Step, list[Asked]]:
    """The result, after all required looks; the records arrive one by one, some of them twice."""
    came: list[bytes] = []
    waiting, asked = list(records), 0
    rounds: list[Asked] = []
    if shuffle is not None:
        waiting += shuffle.sample(waiting, len(waiting) // 2)
        shuffle.shuffle(waiting)
    while waiting:
        came.append(waiting.pop(0))
        found = step(came, asked=asked)
        if found is None:
            continue
        if found.result is not None:
            return found, rounds
        said = message_of(found.record)[1]
        assert isinstance(said, Asked)
        rounds.append(said)
        asked = found.asked
        waiting += [_answers(said)] * (1 if shuffle is None else 2)
    raise AssertionError("no result")


@pytest.mark.longer
def test_order_and_duplicates_of_records_change_nothing() -> None:
    rounds = 0
    for number, made in enumerate(MADE):
        records = _records(made.assembled)
        found, asked = _ended(records)
        again, _ = _ended(records, Random(number))
        assert again.record == found.record
        rounds += len(asked)
    assert rounds > 2


@pytest.mark.longer
def test_the_cache_of_earlier_snapshots_changes_no_result() -> None:
    """Each world as three snapshots: unchanged, with one process's state changed, and unchanged again."""
    for number, made in enumerate(MADE):
        recent = RecentReports()
        other = MADE[(number + 1) % len(MADE)].assembled
        changed = {**made.assembled.reports, **dict(list(other.reports.items())[:1])}
        for at, reports in enumerate((made.assembled.reports, changed, made.assembled.reports), start=1):
            told = {
                name: replace(report, snapshot=SnapshotId(at), after=SnapshotId(at - 1)) for name, report in reports.items()
            }
            world = replace(made.assembled, reports=told)
            records = _records(world, snapshot=SnapshotId(at))
            with_memory, without = step(records, late=True, recent=recent), step(records, late=True)
            assert with_memory is not None
            assert without is not None
            assert with_memory.record == without.record


def test_the_memory_of_many_members_is_small() -> None:
    recent = RecentReports(members_max=2)
    for made in MADE[:5]:
        records = _records(made.assembled)
        found, without = step(records, late=True, recent=recent), step(records, late=True)
        assert found is not None
        assert without is not None
        assert found.record == without.record
        assert recent.resolved("shop") is None or len(made.assembled.reports) <= 2


def test_without_the_header_or_a_named_report_there_is_no_result_yet() -> None:
    for made in MADE[:20]:
        records = _records(made.assembled)
        assert step(records[1:]) is None
        assert step(records[1:], late=True) is None
        assert step(records[:-1]) is None


@pytest.mark.longer
def test_a_report_that_never_arrives_is_missing_and_causes_no_false() -> None:
    without = 0
    for made in MADE:
        found = step(_records(made.assembled)[:-1], late=True)
        assert found is not None
        assert found.result is not None
        lost = list(made.assembled.reports)[-1]
        assert lost in found.result.assembled.snapshot.missing
        whole, _ = _ended(_records(made.assembled))
        assert whole.result is not None
        for partial, full in zip(found.result.verdicts, whole.result.verdicts, strict=True):
            without += partial.holds is Holds.UNDETERMINED
            assert partial.holds is not Holds.TRUE or full.holds is Holds.TRUE
    assert without


def test_a_report_that_the_header_does_not_name_is_ignored() -> None:
    assembled = MADE[0].assembled
    first = next(iter(assembled.reports.values())).process
    others = tuple(report.process for report in assembled.reports.values() if report.process != first)
    absent = (*(Member(process=each) for each in assembled.absent), Member(process=first))
    found, _ = _ended(_records(assembled, reported=others, absent=absent))
    assert found.result is not None
    assert first.instance in found.result.assembled.snapshot.missing


def test_a_round_is_requested_once_and_its_memory_is_passed_on() -> None:
    for made in MADE:
        records = _records(made.assembled)
        found = step(records)
        assert found is not None
        if found.result is None:
            assert step(records, asked=found.asked) is None
            break
    else:
        raise AssertionError("no suspicion")
    ended, _ = _ended(records)
    assert ended.result is not None
    assert ended.result.memory.parties
    told = message_of(ended.record)[1]
    assert isinstance(told, Result)
    assert told.memory == ended.result.memory
    header = _header(made.assembled, memory=told.memory, snapshot=SnapshotId(99))
    assert header_of(header_record(header)) == header


def test_a_result_survives_the_round_trip_to_a_record() -> None:
    for made in MADE:
        found, _ = _ended(_records(made.assembled))
        fleet, told = message_of(found.record)
        assert fleet == "shop"
        assert isinstance(told, Result)
        assert found.result is not None
        assert told.verdicts == found.result.verdicts
        assert told.assembled.settled == found.result.assembled.settled
        assert told.assembled.orphans == found.result.assembled.orphans
        assert told.assembled.snapshot.missing == found.result.assembled.snapshot.missing
        assert dict(told.assembled.snapshot.looks) == dict(found.result.assembled.snapshot.looks)


@pytest.mark.parametrize("damaged", [b"R", b"R\xff\xff\xff", b"R\x12\x00"])
def test_an_unreadable_record_is_not_a_report(damaged: bytes) -> None:
    records = _records(MADE[0].assembled)
    assert step([*records[:-1], damaged]) is None
    found = step([*records[:-1], damaged], late=True)
    assert found is not None
    assert found.result is not None


def test_processes_are_distinguished_by_incarnation() -> None:
    assembled = MADE[0].assembled
    records = _records(assembled)
    named = tuple(
        ProcessId(service=each.service, instance=each.instance, incarnation=each.incarnation + 1)
        for each in (report.process for report in assembled.reports.values())
    )
    assert step([header_record(_header(assembled, reported=named)), *records[1:]]) is None
