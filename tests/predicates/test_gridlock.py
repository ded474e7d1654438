"""Only parties that a deadline will free are in a gridlock; deadlock reports deadlocked ones, and those behind them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from detector.core.document.reader import read_document
from detector.predicates.deadlock import Deadlock
from detector.predicates.gridlock import Gridlock
from stilltrue.model import Holds, Verdict

EARLY, LATE = "2026-11-20T14:02:11Z", "2026-11-20T14:05:00Z"


def ask(*waits: dict[str, Any], missing: tuple[str, ...] = ()) -> tuple[Verdict, Verdict]:
    """The verdicts of gridlock and deadlock."""
    snapshot = read_document({"waits": list(waits), "missing": list(missing)})
    return Gridlock().evaluate(snapshot), Deadlock().evaluate(snapshot)


def wait(waiter: str, *among: str, deadline: str | None = None) -> dict[str, Any]:
    return {"waiter": waiter, "among": list(among)} | ({"deadline": deadline} if deadline else {})


def test_a_cycle_with_a_deadline_holds_until_it_fires() -> None:
    gridlock, deadlock = ask(wait("a", "b"), wait("b", "a", deadline=LATE), wait("c", "a", deadline=EARLY))
    assert gridlock.holds is Holds.TRUE
    assert gridlock.core == ("a", "b")
    assert gridlock.behind == ("c",)
    assert gridlock.until == read_time(EARLY)
    assert deadlock.holds is Holds.FALSE


def test_a_deadlock_is_not_a_gridlock() -> None:
    gridlock, deadlock = ask(wait("a", "b"), wait("b", "a"))
    assert (gridlock.holds, deadlock.holds) == (Holds.FALSE, Holds.TRUE)
    assert "2 parties are deadlocked" in gridlock.witness.text


def test_a_wait_with_a_deadline_on_a_deadlock_is_not_a_gridlock() -> None:
    gridlock, _ = ask(wait("a", "b"), wait("b", "a"), wait("c", "a", deadline=EARLY))
    assert gridlock.holds is Holds.FALSE


def test_a_gridlock_beside_a_deadlock_is_distinguished() -> None:
    gridlock, deadlock = ask(wait("a", "b"), wait("b", "a"), wait("x", "y"), wait("y", "x", deadline=LATE))
    assert deadlock.core == ("a", "b")
    assert gridlock.core == ("x", "y")
    assert gridlock.until == read_time(LATE)


def test_a_possible_deadlock_is_not_yet_a_gridlock() -> None:
    gridlock, deadlock = ask(wait("a", "m/x"), wait("b", "a", deadline=EARLY), missing=("m",))
    assert deadlock.holds is Holds.UNDETERMINED
    assert gridlock.holds is Holds.UNDETERMINED


def test_a_set_that_its_deadline_may_not_free_is_not_a_gridlock() -> None:
    ring = (wait("a", "b", deadline=EARLY), wait("b", "a", deadline=EARLY))
    assert ask(*ring, missing=("m",))[0].holds is Holds.TRUE
    gridlock, _ = ask(*ring, wait("a", "m/x"), missing=("m",))
    assert gridlock.holds is Holds.UNDETERMINED


def read_time(text: str) -> float:
    """Seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp()
