"""A TRUE lists its assumptions; other answers do not."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest

from detector.core.document.reader import read_document
from detector.core.registry import ask, find_predicate, predicate_names
from detector.core.snapshot import Snapshot
from detector.core.verdict import write_verdict
from detector.core.verification import assumptions
from detector.core.verification.assumptions import with_assumptions
from stilltrue.model import Holds, PartyName, Verdict, Witness
from stilltrue.protocol.requests.look import PartyLook

LOOKED_AT = MappingProxyType({PartyName("a/1"): PartyLook(party=PartyName("a/1"), unchanged=True)})


def answer(predicate: str, holds: Holds = Holds.TRUE, until: float | None = None) -> Verdict:
    return Verdict(predicate=predicate, holds=holds, witness=Witness(kind="none", parties=(), text=""), until=until)


def test_a_true_states_whether_there_was_a_second_look() -> None:
    seen = [with_assumptions(answer("deadlock"), snapshot).assumptions for snapshot in (Snapshot(), Snapshot(looks=LOOKED_AT))]
    assert assumptions.NOT_LOOKED in seen[0]
    assert assumptions.NOT_LOOKED not in seen[1]
    assert assumptions.LOOKED in seen[1]
    assert all(assumptions.OUTSIDE in one for one in seen)


def test_a_verdict_with_a_time_rests_on_the_clocks() -> None:
    assert assumptions.CLOCKS in with_assumptions(answer("gridlock", until=5.0), Snapshot()).assumptions
    assert assumptions.CLOCKS not in with_assumptions(answer("deadlock"), Snapshot()).assumptions


@pytest.mark.parametrize("holds", [Holds.FALSE, Holds.UNDETERMINED])
def test_only_a_true_lists_assumptions(holds: Holds) -> None:
    assert with_assumptions(answer("deadlock", holds), Snapshot()).assumptions == ()


@pytest.mark.parametrize("name", predicate_names())
def test_each_built_in_predicate_has_its_assumptions(name: str) -> None:
    assert assumptions.STABLE not in with_assumptions(answer(name), Snapshot()).assumptions


def test_a_plug_in_predicate_keeps_its_own_assumptions() -> None:
    own = replace(answer("mine"), assumptions=("the moon is full",))
    assert with_assumptions(own, Snapshot()).assumptions == ("the moon is full", assumptions.STABLE)


def test_assumptions_are_in_the_json_too() -> None:
    cycle = read_document({"waits": [{"waiter": "a", "among": ["b"]}, {"waiter": "b", "among": ["a"]}]})
    verdict = ask(find_predicate("deadlock"), cycle)
    assert verdict.holds is Holds.TRUE
    assert write_verdict(verdict)["assumptions"] == list(verdict.assumptions) != []
