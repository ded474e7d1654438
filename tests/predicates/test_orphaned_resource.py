"""Parties that wait for an ended holder are reported by orphaned-resource, not by deadlock or gridlock."""

from __future__ import annotations

from typing import Any

import pytest

from detector.core.document.reader import read_document
from detector.predicates.deadlock import Deadlock
from detector.predicates.gridlock import Gridlock
from detector.predicates.orphaned_resource import OrphanedResource
from stilltrue.model import Holds, Verdict

LATE = "2026-11-20T14:05:00Z"
GONE = "shop/ended:thread worker-1"
LEFT = {"waiter": GONE, "among": [GONE]}


def ask(*waits: dict[str, Any], missing: tuple[str, ...] = ()) -> Verdict:
    return OrphanedResource().evaluate(read_document({"waits": list(waits), "missing": list(missing)}))


def wait(waiter: str, *among: str, needs: int = 1, deadline: str | None = None) -> dict[str, Any]:
    return {"waiter": waiter, "among": list(among), "needs": needs} | ({"deadline": deadline} if deadline else {})


def test_the_waiter_for_an_ended_holder_is_the_core() -> None:
    verdict = ask(LEFT, wait("shop/a", GONE), wait("shop/b", "shop/a"))
    assert verdict.holds is Holds.TRUE
    assert (verdict.core, verdict.behind) == (("shop/a",), ("shop/b",))
    assert verdict.remainder == ("shop/a", "shop/b")
    assert verdict.witness.kind == "orphan"
    assert GONE in verdict.witness.text


def test_another_holder_that_can_move_frees_the_waiter() -> None:
    assert ask(LEFT, wait("shop/a", GONE, "shop/b")).holds is Holds.FALSE


def test_another_holder_that_is_stuck_too_does_not_free_the_waiter() -> None:
    verdict = ask(LEFT, wait("shop/a", GONE, "shop/b"), wait("shop/b", GONE, "shop/b"))
    assert verdict.core == ("shop/a", "shop/b")


def test_a_wait_with_a_deadline_ends_by_itself() -> None:
    assert ask(LEFT, wait("shop/a", GONE, deadline=LATE)).holds is Holds.FALSE


def test_false_does_not_call_deadlocked_parties_movable() -> None:
    verdict = ask(wait("shop/a", "shop/b"), wait("shop/b", "shop/a"))
    assert verdict.holds is Holds.FALSE
    assert verdict.witness.text == "no party was stuck behind a holder that has ended when the snapshot began"


def test_false_of_the_others_refers_to_orphaned_resource() -> None:
    """``ask deadlock`` is the first question in a hang: its answer must not say that these parties could still be freed."""
    document = read_document({"waits": [LEFT, wait("shop/a", GONE), wait("shop/b", "shop/a")]})
    where = "2 parties are stuck behind a holder that has ended: see orphaned-resource"
    deadlock, gridlock = Deadlock().evaluate(document), Gridlock().evaluate(document)
    assert (deadlock.holds, gridlock.holds) == (Holds.FALSE, Holds.FALSE)
    assert deadlock.witness.text == f"no party was deadlocked when the snapshot began; {where}"
    assert gridlock.witness.text == f"no party was waiting only on a deadline when the snapshot began; {where}"


def test_false_does_not_refer_to_it_for_waiters_that_can_be_freed() -> None:
    document = read_document({"waits": [LEFT, wait("shop/a", GONE, deadline=LATE)]})
    assert "orphaned-resource" not in Deadlock().evaluate(document).witness.text
    assert "orphaned-resource" not in Gridlock().evaluate(document).witness.text


STOPPABLE = {"waiter": GONE, "among": [GONE, "shop/main"]}


def test_a_caller_that_could_only_stop_the_server_itself_waits_for_the_ended_handler() -> None:
    """A program of one task that owns the server and calls it: it is no deadlock that anybody could cure."""
    waits = [STOPPABLE, wait("shop/main", GONE)]
    assert ask(*waits).core == ("shop/main",)
    assert Deadlock().evaluate(read_document({"waits": waits})).holds is Holds.FALSE


def test_a_party_that_can_stop_the_server_frees_the_caller() -> None:
    waits = [STOPPABLE, wait("shop/a", GONE)]
    assert ask(*waits).holds is Holds.FALSE
    assert Deadlock().evaluate(read_document({"waits": waits})).holds is Holds.FALSE


def test_callers_are_behind_the_deadlock_of_the_party_that_could_stop_the_server() -> None:
    waits = [STOPPABLE, wait("shop/a", GONE), wait("shop/main", "x/1"), wait("x/1", "shop/main")]
    verdict = Deadlock().evaluate(read_document({"waits": waits}))
    assert set(verdict.remainder) == {"shop/main", "x/1", GONE, "shop/a"}
    assert verdict.victims in {("shop/main",), ("x/1",)}
    assert ask(*waits).holds is Holds.FALSE


def test_an_ended_holder_without_waiters_is_not_reported() -> None:
    assert ask(LEFT).holds is Holds.FALSE
    assert ask(LEFT, wait("shop/a", "shop/b")).holds is Holds.FALSE


@pytest.mark.parametrize("other", [Deadlock(), Gridlock()])
def test_an_orphaned_resource_is_neither_a_deadlock_nor_a_gridlock(other: Deadlock | Gridlock) -> None:
    snapshot = read_document({"waits": [LEFT, wait("shop/a", GONE), wait("shop/b", "shop/a", deadline=LATE)]})
    assert other.evaluate(snapshot).holds is Holds.FALSE


def test_a_deadlock_beside_it_is_not_counted_twice() -> None:
    waits = [LEFT, wait("shop/a", GONE), wait("x/1", "x/2"), wait("x/2", "x/1"), wait("x/3", "x/1")]
    verdict = ask(*waits)
    assert verdict.remainder == ("shop/a",)
    assert Deadlock().evaluate(read_document({"waits": waits})).core == ("x/1", "x/2")


def test_a_waiter_for_an_ended_holder_may_be_deadlocked_besides() -> None:
    """Another wait of its own may be part of a deadlock, or depend on a missing member; it stays stuck anyway."""
    orphan = [LEFT, wait("shop/a", GONE)]
    assert ask(*orphan, wait("shop/a", "x/1"), wait("x/1", "shop/a")).core == ("shop/a",)
    assert ask(*orphan, wait("shop/a", "gone/1"), missing=("gone",)).core == ("shop/a",)


def test_only_the_holders_that_are_waited_for_are_named() -> None:
    other = "other/ended:thread worker-2"
    verdict = ask(LEFT, wait("shop/a", GONE), wait(other, other))
    assert verdict.witness.text == f"{GONE} can never give shop/a what they wait for"


def test_a_party_that_merely_waits_for_itself_has_not_ended() -> None:
    own = [wait("shop/thread:ended", "shop/thread:ended"), wait("shop/a", "shop/thread:ended")]
    assert ask(*own).holds is Holds.FALSE
    assert Deadlock().evaluate(read_document({"waits": own})).holds is Holds.TRUE


def test_undetermined_if_it_depends_on_a_missing_member() -> None:
    assert ask(LEFT, wait("shop/a", GONE, "billing/x"), missing=("billing",)).holds is Holds.UNDETERMINED
