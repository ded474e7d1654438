"""Incidents of an archive follow the service's rules; near misses are grouped into episodes."""

from __future__ import annotations

import pyarrow as pa

from detector.analysis.findings.incidents import EPISODE_GAP_SNAPSHOTS, Definite, near_miss_rows, past_incidents, sightings
from detector.analysis.verdicts import FOUND


def _seen(name: str, first: int, last: int, keys: list[str], formed: float = 0.5) -> dict[str, object]:
    return {
        "archive": None,
        "kind": "core",
        "id": name,
        "first_snapshot": first,
        "last_snapshot": last,
        "opened": float(first),
        "seen": float(last),
        "formed": formed,
        "snapshots": last - first + 1,
        "parties": ["a/x", "b/y"],
        "keys": keys,
    }


def test_cores_that_share_a_wait_are_one_incident_and_new_waits_a_recurrence() -> None:
    definite: Definite = {None: [(number, float(number)) for number in range(1, 11)]}
    rows = [_seen("i-1", 1, 2, ["w1", "w2"]), _seen("i-2", 3, 4, ["w2", "w3"]), _seen("i-3", 8, 10, ["w9"], 7.5)]
    one, two = past_incidents(rows, definite)
    assert (one.id, one.first_snapshot, one.last_snapshot, one.snapshots, one.closed) == ("i-1", 1, 4, 4, 5.0)
    assert (two.id, two.closed, two.recurrence, two.detection_seconds) == ("i-3", None, 2, 0.5)


def test_a_core_seen_again_after_an_end_is_another_incident() -> None:
    """A cure frees the parties of a core, and some of them deadlock anew with others before their own waits have ended."""
    definite: Definite = {None: [(number, float(number)) for number in range(1, 11)]}
    rows = [_seen("i-1", 1, 4, ["w1", "w2"]), _seen("i-2", 6, 7, ["w2", "w3"]), _seen("i-3", 8, 10, ["w3", "w4"])]
    one, two = past_incidents(rows, definite)
    assert (one.id, one.last_snapshot, one.closed) == ("i-1", 4, 5.0)
    assert (two.id, two.first_snapshot, two.closed, two.recurrence) == ("i-2", 6, None, 2)
    unknown: Definite = {None: [(number, float(number)) for number in range(1, 11) if number != 5]}
    (whole,) = past_incidents(rows, unknown)
    assert (whole.id, whole.closed) == ("i-1", None), "an answer that is not known ends nothing"


def test_near_misses_of_one_core_are_an_episode_until_a_gap() -> None:
    numbers = (1, 2, 2 + EPISODE_GAP_SNAPSHOTS, 3 + 2 * EPISODE_GAP_SNAPSHOTS)
    finding = {"kind": "near miss", "id": None, "parties": ["b/y", "a/x", "a/z"], "saved_by": "c/w"}
    rows = [
        {"snapshot": number, "begun": number * 60.0, "ended": number * 60.0 + 1, "predicate": "deadlock", "findings": [finding]}
        for number in reversed(numbers)
    ]
    found = near_miss_rows(sightings(pa.Table.from_pylist(rows, schema=FOUND)))
    assert [(row["snapshots"], row["first"], row["last"]) for row in found] == [(3, 60.0, 420.0), (1, 780.0, 780.0)]
    assert {(tuple(row["processes"]), row["parties"], row["saved_by"]) for row in found} == {(("a", "b"), 3, "c/w")}


def test_two_archives_have_separate_incidents() -> None:
    definite: Definite = {"a": [(1, 1.0), (2, 2.0)], "b": [(1, 101.0), (2, 102.0)]}
    rows = [_seen("i-1", 1, 1, ["w1"]) | {"archive": archive} for archive in ("a", "b")]
    assert [(each.archive, each.closed) for each in past_incidents(rows, definite)] == [("a", 2.0), ("b", 102.0)]
