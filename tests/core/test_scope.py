"""A scope's view: processes outside can move, messages into it count, and missing members belong to every scope."""

from __future__ import annotations

from typing import Any

import pytest

from detector.core.document.reader import read_document
from detector.core.scope import scoped
from detector.core.selector import has_labels, parse_selector
from detector.core.snapshot import Snapshot
from detector.predicates.deadlock import Deadlock
from detector.predicates.termination import Termination
from stilltrue.model import Holds, ProcessState

RED, BLUE = {"team": "red"}, {"team": "blue"}
PROCESSES = {
    "a": {"activity": "idle", "labels": RED, "service": "shop"},
    "b": {"activity": "idle", "labels": RED | {"zone": "1"}, "service": "bank"},
    "o": {"activity": "active", "labels": BLUE, "service": "shop"},
}


def red(**document: Any) -> Snapshot:
    return scoped(read_document({"processes": PROCESSES} | document), "red", RED)


def wait(waiter: str, *among: str, **more: Any) -> dict[str, Any]:
    return {"waiter": waiter, "among": list(among), **more}


def test_the_scope_has_its_own_members_name_and_count() -> None:
    view = red()
    assert (sorted(view.processes), view.ref.scope, view.ref.members) == (["a", "b"], "red", 2)
    assert Termination().evaluate(view).holds is Holds.TRUE


def test_a_party_outside_the_scope_can_move() -> None:
    ring = [wait("a/1", "b/1"), wait("b/1", "a/1")]
    across = [wait("a/2", "o/1"), wait("o/1", "a/2")]
    assert Deadlock().evaluate(red(waits=ring + across)).core == ("a/1", "b/1")
    assert Deadlock().evaluate(red(waits=across)).holds is Holds.FALSE


@pytest.mark.parametrize(
    ("message", "counts"),
    [
        ({"source": "a", "target": "b"}, True),
        ({"source": "o", "target": "a"}, True),
        ({"source": "a", "target": "o"}, False),
        ({"source": "o", "target": "o"}, False),
        ({"source": "a"}, True),
        ({"source": "a", "target": "gone"}, True),
    ],
)
def test_messages_into_the_scope_count_and_those_out_of_it_do_not(message: dict[str, str], counts: bool) -> None:
    view = red(in_transit=[message], missing=["gone"])
    assert bool(view.in_transit) is counts


def test_a_process_outside_that_the_scope_waits_for_counts_as_active_until_the_wait_is_over() -> None:
    verdict = Termination().evaluate(red(waits=[wait("a/1", "o/1")]))
    assert verdict.holds is Holds.FALSE
    assert verdict.witness is not None
    assert verdict.witness.parties == ("o",)


def test_a_missing_member_belongs_to_every_scope() -> None:
    view = red(missing=["gone"], waits=[wait("a/1", "gone/1")])
    assert (view.missing, view.ref.members) == (("gone",), 3)
    assert Deadlock().evaluate(view).decisive == ("gone",)


def test_every_label_must_match_and_the_service_is_one() -> None:
    state = ProcessState(service="shop", labels={"team": "red"})
    for labels, borne in (({}, True), (RED, True), (RED | {"service": "shop"}, True), (RED | {"service": "bank"}, False)):
        assert has_labels(state, labels) is borne, labels


@pytest.mark.parametrize("text", ["team", "team=", "=red", "team=red,", "team=red,zone"])
def test_an_empty_selector_is_refused(text: str) -> None:
    assert parse_selector(" team = red , zone=1") == {"team": "red", "zone": "1"}
    with pytest.raises(ValueError, match="a scope must be label=value"):
        parse_selector(text)
