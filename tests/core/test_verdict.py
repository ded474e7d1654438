"""A verdict as JSON: exactly the fixed keys first, in their order, times in UTC with a Z."""

from __future__ import annotations

import json
import math

import pytest

from detector.core.incident_identity import incident_id
from detector.core.times import clock, read_time, write_time
from detector.core.verdict import FIXED_KEYS, KEYS, write_verdict
from stilltrue.model import Evidence, Holds, PartyName, SnapshotId, SnapshotRef, Verdict, Witness

A, B = PartyName("a/1"), PartyName("b/1")


def test_a_verdict_is_written_in_the_fixed_form() -> None:
    verdict = Verdict(
        predicate="gridlock",
        holds=Holds.TRUE,
        witness=Witness(kind="cycle", parties=(A, B), text="round"),
        snapshot=SnapshotRef(id=SnapshotId(7), begun=0.0, ended=0.25, members=2),
        remainder=(A, B),
        core=(A, B),
        until=1_795_442_531.0,
        victims=(A,),
    )
    written = write_verdict(verdict)
    assert list(written.items())[: len(FIXED_KEYS)] == [
        ("predicate", "gridlock"),
        ("holds", True),
        ("remainder", ["a/1", "b/1"]),
        ("core", ["a/1", "b/1"]),
        ("behind", []),
        ("witness", {"kind": "cycle", "parties": ["a/1", "b/1"], "text": "round"}),
        ("missing", []),
        ("until", "2026-11-23T14:02:11Z"),
        (
            "snapshot",
            {"id": 7, "scope": "all", "begun": "1970-01-01T00:00:00Z", "ended": "1970-01-01T00:00:00.25Z", "members": 2},
        ),
    ]
    assert written["victims"] == ["a/1"]
    assert list(written) == list(KEYS)


@pytest.mark.parametrize(("holds", "written"), [(Holds.TRUE, True), (Holds.FALSE, False), (Holds.UNDETERMINED, None)])
def test_the_answer_is_true_false_or_null(holds: Holds, written: bool | None) -> None:
    verdict = Verdict(predicate="p", holds=holds, witness=Witness(kind="k", parties=(), text=""))
    assert write_verdict(verdict)["holds"] is written


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("2026-11-20T14:02:11Z", "2026-11-20T14:02:11Z"),
        ("2026-11-20T14:02:11", "2026-11-20T14:02:11Z"),
        ("2026-11-20T15:02:11.100000+01:00", "2026-11-20T14:02:11.1Z"),
        ("1969-12-31T23:59:59.999999Z", "1969-12-31T23:59:59.999999Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
    ],
)
def test_times_come_back_in_utc(text: str, written: str) -> None:
    assert write_time(read_time(text)) == written


@pytest.mark.parametrize(
    ("seconds", "written", "at"),
    [
        (253_402_300_799.0, "9999-12-31T23:59:59Z", "23:59:59"),
        (253_402_300_800.0, "9999-12-31T23:59:59.999999Z", "23:59:59"),
        (math.inf, "9999-12-31T23:59:59.999999Z", "23:59:59"),
        (-1e300, "0001-01-01T00:00:00Z", "00:00:00"),
        (-1.0, "1969-12-31T23:59:59Z", "23:59:59"),
    ],
)
def test_a_time_beyond_the_calendar_becomes_its_end(seconds: float, written: str, at: str) -> None:
    assert (write_time(seconds), clock(seconds)) == (written, at)


@pytest.mark.parametrize("text", ["", "soon", "2026-13-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_an_invalid_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_time(text)


def test_the_id_of_a_core_depends_on_the_set_of_its_parties_alone() -> None:
    assert incident_id("deadlock", [("a", 1, 2), ("b", 1, 1)]) == incident_id("deadlock", [("b", 1, 1), ("a", 1, 2)])
    assert incident_id("deadlock", [("a", 1, 2)]) != incident_id("deadlock", [("a", 1, 3)])
    assert incident_id("deadlock", [("a", 1, 2)]) != incident_id("gridlock", [("a", 1, 2)])


def test_the_evidence_of_a_verdict_is_json() -> None:
    seen = Evidence(party=PartyName("a/x"), stack=("shop.py:41 in place",), trace="4bf9")
    verdict = Verdict(predicate="deadlock", holds=Holds.TRUE, witness=Witness(kind="", parties=(), text=""), evidence=(seen,))
    written = json.loads(json.dumps(write_verdict(verdict)))
    assert written["evidence"] == [{"party": "a/x", "stack": ["shop.py:41 in place"], "trace": "4bf9"}]
