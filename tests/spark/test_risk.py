"""Risk is ranked by how likely all pools of a circle are full; incidents are counted by the service's rules."""

from __future__ import annotations

import pytest

from detector.spark.incidents import past_incidents
from detector.spark.java import JavaError, find_java, java_major
from detector.spark.risk import erlang_b, risks


@pytest.mark.parametrize(("servers", "load", "wanted"), [(1, 1.0, 0.5), (2, 1.0, 0.2), (10, 5.0, 0.018385), (3, 0.0, 0.0)])
def test_erlang_b(servers: int, load: float, wanted: float) -> None:
    assert erlang_b(servers, load) == pytest.approx(wanted, rel=1e-4)


def test_the_fullest_circle_comes_first_and_unbounded_pools_make_none() -> None:
    edges = [("a", "b", 9), ("b", "a", 3), ("c", "d", 5), ("d", "c", 5), ("e", "e", 1), ("f", "a", 7), ("a", "f", 7)]
    pools = {"a": (2, 0.1, 0.0), "b": (2, 0.1, 0.0), "c": (2, 1.5, 0.4), "d": (2, 1.5, 0.5), "f": (None, 9.0, 0.0)}
    found = risks(edges, pools)
    assert [each.services for each in found] == [("c", "d"), ("a", "b")]
    assert found[1].samples == 3
    assert found[0].score == pytest.approx(0.2)


def _seen(name: str, first: int, last: int, keys: list[str], formed: float = 0.5) -> dict[str, object]:
    return {
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
    definite = [(number, float(number)) for number in range(1, 11)]
    rows = [_seen("i-1", 1, 2, ["w1", "w2"]), _seen("i-2", 3, 4, ["w2", "w3"]), _seen("i-3", 8, 10, ["w9"], 7.5)]
    one, two = past_incidents(rows, definite)
    assert (one.id, one.first_snapshot, one.last_snapshot, one.snapshots, one.closed) == ("i-1", 1, 4, 4, 5.0)
    assert (two.id, two.closed, two.recurrence, two.detection_seconds) == ("i-3", None, 2, 0.5)


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "21" x', 21),
        ("no", None),
    ],
)
def test_what_java_says_of_itself(text: str, major: int | None) -> None:
    assert java_major(text) == major


def test_a_wrong_java_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(JavaError, match="needs Java 17 or newer") as caught:
        find_java()
    assert "\n" not in str(caught.value)
