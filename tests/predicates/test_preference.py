"""Preferences of one's own: found by entry point, and whatever they do wrong costs the suggestion alone, in their name."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint

import pytest

from detector.core.document import read_document
from detector.predicates import preference
from detector.predicates.deadlock import Deadlock
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
    """Preferences that are installed for the test alone: name and where it is."""
    known: list[tuple[str, str]] = []

    def entry_points(*, group: str, name: str | None = None) -> list[EntryPoint]:
        assert group == "stilltrue.preferences"
        return [EntryPoint(each, value, group) for each, value in known if name in (None, each)]

    monkeypatch.setattr(preference, "entry_points", entry_points)
    monkeypatch.setitem(sys.modules, "mine", sys.modules[__name__])
    return known


def test_a_preference_of_ones_own_chooses(installed: list[tuple[str, str]]) -> None:
    installed += [("last", "mine:last_by_name"), ("last", "mine:last_by_name")]
    assert Deadlock(victims="last").evaluate(read_document(RING)).victims == ("b/1",)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("raises", "failed: RuntimeError: two lines"),
        ("ends", "failed: SystemExit: 0"),
        ("text", "answered with 'cheap', not a number"),
        ("nothing", "answered with nan, not a number"),
    ],
)
def test_one_that_fails_costs_the_suggestion_and_not_the_verdict(
    installed: list[tuple[str, str]], name: str, said: str
) -> None:
    installed.append((name, f"mine:{name}"))
    verdict = Deadlock(victims=name).evaluate(read_document(RING))
    assert (verdict.holds, verdict.core, verdict.victims) == (Holds.TRUE, ("a/1", "b/1"), ())
    assert verdict.explanation[-1] == f"no cure suggested: preference '{name}' {said}"


@pytest.mark.parametrize(
    ("places", "said"),
    [
        (["mine:absent"], r"^preference 'p' \(mine:absent\) cannot be loaded: AttributeError"),
        (["mine:RING"], r"^preference 'p' \(mine:RING\) is no function$"),
        (["mine:text", "mine:ends"], "^preference 'p' is claimed by mine:ends and by mine:text$"),
        ([], "^setting victims must be one of least-work, lowest-priority, youngest, not 'p'; for example victims=youngest$"),
    ],
)
def test_one_that_cannot_be_used_is_named_with_its_place(
    installed: list[tuple[str, str]], places: list[str], said: str
) -> None:
    installed += [("p", place) for place in places]
    with pytest.raises(ValueError, match=said):
        Deadlock(victims="p")
