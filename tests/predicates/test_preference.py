"""Third-party preferences: found by entry point; their failures are attributed to them and cost only the suggestion."""

from __future__ import annotations

import sys
from functools import partial
from importlib.metadata import EntryPoint

import numpy as np
import pytest

from detector.core.document.reader import read_document
from detector.predicates.deadlock import Deadlock
from detector.predicates.evidence import preference
from stilltrue.model import Holds, PartyName, ProcessState

RING = {"waits": [{"waiter": "a/1", "among": ["b/1"]}, {"waiter": "b/1", "among": ["a/1"]}]}


def last_by_name(party: PartyName, since: float | None, state: ProcessState) -> float:
    return -float(ord(party[0]))


def raises(party: PartyName, since: float | None, state: ProcessState) -> float:
    raise RuntimeError("two\nlines")


def ends(party: PartyName, since: float | None, state: ProcessState) -> float:
    sys.exit(0)


def text(party: PartyName, since: float | None, state: ProcessState) -> float:
    return "cheap"  # type: ignore[return-value]


def nothing(party: PartyName, since: float | None, state: ProcessState) -> float:
    return float("nan")


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Installs preferences for one test; maps names to entry-point values."""
    known: list[tuple[str, str]] = []

    def entry_points(*, group: str, name: str | None = None) -> list[EntryPoint]:
        assert group == "stilltrue.preferences"
        return [EntryPoint(each, value, group) for each, value in known if name in (None, each)]

    monkeypatch.setattr(preference, "entry_points", entry_points)
    monkeypatch.setitem(sys.modules, "mine", sys.modules[__name__])
    return known


def test_a_plug_in_preference_chooses(installed: list[tuple[str, str]]) -> None:
    installed += [("last", "mine:last_by_name"), ("last", "mine:last_by_name")]
    assert Deadlock(victims="last").evaluate(read_document(RING)).victims == ("b/1",)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("raises", "failed: RuntimeError: two lines"),
        ("ends", "failed: SystemExit: 0"),
        ("text", "returned 'cheap', not a number"),
        ("nothing", "returned nan, not a number"),
    ],
)
def test_a_failing_preference_costs_the_suggestion_and_not_the_verdict(
    installed: list[tuple[str, str]], name: str, said: str
) -> None:
    installed.append((name, f"mine:{name}"))
    verdict = Deadlock(victims=name).evaluate(read_document(RING))
    assert (verdict.holds, verdict.core, verdict.victims) == (Holds.TRUE, ("a/1", "b/1"), ())
    assert verdict.explanation[-1] == f"no victims suggested: preference '{name}' {said}"


@pytest.mark.parametrize(
    ("places", "said"),
    [
        (["mine:absent"], r"^preference 'p' \(mine:absent\) cannot be loaded: AttributeError"),
        (["mine:RING"], r"^preference 'p' \(mine:RING\) is not callable$"),
        (["mine:text", "mine:ends"], "^preference 'p' is provided by mine:ends and by mine:text$"),
        ([], "^setting victims must be one of least-work, lowest-priority, youngest, not 'p'; for example victims=youngest$"),
    ],
)
def test_an_unusable_preference_is_named_with_its_entry_point(
    installed: list[tuple[str, str]], places: list[str], said: str
) -> None:
    installed += [("p", place) for place in places]
    with pytest.raises(ValueError, match=said):
        Deadlock(victims="p")


def test_costs_by_age_are_the_same_together_and_alone() -> None:
    rows = [
        {"waiter": "a/1", "among": ["b/1"], "since": "2026-11-21T08:00:00Z"},
        {"waiter": "a/1", "among": ["c/1"], "since": "2026-11-21T07:00:00Z"},
        {"waiter": "a/1~3.1", "among": ["b/1"], "since": "2026-11-21T08:00:00Z"},  # represents part of a wait of a/1
        {"waiter": "x~3.1", "among": ["b/1"], "since": "2026-11-21T08:30:00Z"},  # an ordinary party, since there is no x
        {"waiter": "b/1", "among": ["a/1"]},
    ]
    snapshot = read_document({"waits": rows})
    parties = np.arange(len(snapshot.waits.names))
    at_once = preference.Costs(snapshot, preference.youngest)(parties)
    one_by_one = preference.Costs(snapshot, partial(preference.youngest))(parties)
    assert at_once.tolist() == one_by_one.tolist()
    assert dict(zip(snapshot.waits.names, np.isinf(at_once).tolist(), strict=True)) == {
        "a/1": False, "a/1~3.1": True, "b/1": False, "c/1": False, "x~3.1": False,
    }  # fmt: skip


@pytest.mark.parametrize("never", [(), ("x",)])
def test_a_lock_that_a_probe_reports_is_no_victim(never: tuple[str, ...]) -> None:
    """There is nothing to abort behind it, and deleting its key would let two in; though its wait is the youngest."""
    rows = [
        {"waiter": "cache/lock-lock:stock", "among": ["a/Go#1"], "since": "2026-11-21T08:00:00Z"},
        {"waiter": "a/Go#1", "among": ["cache/lock-lock:stock"], "since": "2026-11-21T07:00:00Z"},
    ]
    assert Deadlock(never=never).evaluate(read_document({"waits": rows})).victims == ("a/Go#1",)
