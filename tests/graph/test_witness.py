"""Core, behind, witness and victims, compared with networkx and brute force on random graphs."""

from __future__ import annotations

import random
from itertools import combinations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detector.graph import cycles, victims
from detector.graph.columns import Floats, Ints, WaitColumns
from detector.graph.reduction import reduce
from detector.graph.remainder import RemainderGraph, remainder_graph
from detector.graph.victims import Victims
from detector.graph.witness import evidence
from stilltrue.model import PartyName, Wait


@st.composite
def graphs(draw: st.DrawFn, kind: str = "any") -> list[Wait]:
    names = [PartyName(f"p{at}") for at in range(draw(st.integers(1, 8)))]
    waits = []
    for name in names:
        for _ in range(draw(st.sampled_from([0, 1, 1, 1, 2])) if kind == "any" else draw(st.integers(0, 1))):
            among = tuple(sorted(draw(st.sets(st.sampled_from(names), min_size=1, max_size=3))))
            needs = {"and": len(among), "or": 1}.get(kind) or draw(st.integers(1, len(among)))
            waits.append(Wait(waiter=name, among=among, needs=needs))
    return waits


def remains(waits: list[Wait]) -> tuple[WaitColumns, RemainderGraph | None]:
    columns = WaitColumns.of(waits)
    reduction = reduce(columns)
    return columns, (None if reduction.free.all() else remainder_graph(columns, reduction))


def is_closed(waits: list[Wait], members: set[str]) -> bool:
    """Whether each member has a wait that the members alone keep open, since too few of its targets are outside."""
    return bool(members) and all(
        any(wait.waiter == member and len(set(wait.among) - members) < wait.needs for wait in waits) for member in members
    )


@settings(max_examples=150, deadline=None)
@given(graphs())
def test_the_witness_is_a_minimal_closed_set(waits: list[Wait]) -> None:
    columns, graph = remains(waits)
    if graph is None:
        return
    proof = evidence(graph)
    members = list(columns.named(proof.witness))
    assert is_closed(waits, set(members))
    for size in range(1, len(members)):
        assert not any(is_closed(waits, set(part)) for part in combinations(members, size)), "a part of it would do"
    assert set(columns.named(proof.witness)) <= set(columns.named(proof.core))
    assert [columns.wait(at).waiter for at in proof.waits.tolist()] == members
    if proof.kind == "cycle":
        for at, member in enumerate(members):
            assert any(w.waiter == member and members[(at + 1) % len(members)] in w.among for w in waits)


@settings(max_examples=100, deadline=None)
@given(graphs(kind="and"))
def test_for_and_waits_the_cycle_is_networkx_s_shortest(waits: list[Wait]) -> None:
    columns, graph = remains(waits)
    picture = nx.DiGraph((wait.waiter, target) for wait in waits for target in wait.among)
    found = list(nx.simple_cycles(picture))
    assert (graph is not None) == bool(found)
    if graph is None:
        return
    proof = evidence(graph)
    assert proof.kind == "cycle"
    assert len(proof.witness) == min(map(len, found))
    core = {name for part in nx.strongly_connected_components(picture) for name in part if len(part) > 1}
    core |= set(nx.nodes_with_selfloops(picture))
    assert set(columns.named(proof.core)) == core
    assert set(columns.named(graph.parties)) == core.union(*(nx.ancestors(picture, name) for name in core))


@settings(max_examples=100, deadline=None)
@given(graphs(kind="or"))
def test_for_or_waits_the_remainder_is_the_set_that_reaches_no_free_party(waits: list[Wait]) -> None:
    columns, graph = remains(waits)
    picture = nx.DiGraph((wait.waiter, target) for wait in waits for target in wait.among)
    waiting = {wait.waiter for wait in waits}
    stuck_ones = {name for name in picture if not ({name} | nx.descendants(picture, name)) - waiting}
    assert set(columns.named(graph.parties) if graph else ()) == stuck_ones


def test_a_long_ring_is_found_whole_and_a_short_one_is_preferred(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [PartyName(f"r{at:04}") for at in range(3_000)]
    ring = [Wait(waiter=name, among=(names[at - 1],)) for at, name in enumerate(names)]
    _, graph = remains(ring)
    assert graph is not None
    assert len(evidence(graph).witness) == 3_000
    three = [PartyName(name) for name in ("x", "y", "z")]
    ring += [Wait(waiter=name, among=(three[at - 1],)) for at, name in enumerate(three)]
    for steps in (cycles.STEPS_MAX, 0):
        monkeypatch.setattr(cycles, "STEPS_MAX", steps)
        columns, graph = remains(ring)
        assert graph is not None
        assert columns.named(evidence(graph).witness) == ("x", "z", "y")


def cure(waits: list[Wait], never: frozenset[str] = frozenset()) -> tuple[WaitColumns, Victims]:
    columns = WaitColumns.of(waits)
    reduction = reduce(columns)

    def cost(parties: Ints) -> Floats:
        return np.array([np.inf if name in never else float(name[1:]) for name in columns.named(parties)])

    return columns, victims.victims(columns, reduction, remainder_graph(columns, reduction), cost)


def frees(waits: list[Wait], given_up: tuple[str, ...]) -> bool:
    columns = WaitColumns.of(waits)
    released = np.isin(np.array(columns.names), given_up)
    ended = released[columns.waiter]
    return bool(reduce(columns, ended=ended).free.all())


@settings(max_examples=100, deadline=None)
@given(graphs(), st.randoms(use_true_random=False))
def test_the_victims_free_every_party_and_no_smaller_set_does(waits: list[Wait], rng: random.Random) -> None:
    columns, graph = remains(waits)
    if graph is None:
        return
    left = columns.named(graph.parties)
    never = frozenset(rng.sample(left, rng.randint(0, len(left) // 2)))
    _, found = cure(waits, never)
    allowed = [name for name in left if name not in never]
    best = next((s for size in range(1, len(left) + 1) for s in combinations(allowed, size) if frees(waits, s)), ())
    names = columns.named(found.parties)
    assert len(names) == len(best)
    assert not never.intersection(names)
    assert frees(waits, names) or not names


def test_the_cheapest_of_the_smallest_sets_is_chosen() -> None:
    three = [PartyName(name) for name in ("p3", "p1", "p2")]
    columns, found = cure([Wait(waiter=name, among=(three[at - 1],)) for at, name in enumerate(three)])
    assert (columns.named(found.parties), found.exact) == (("p1",), True)


def test_victims_of_large_cores_free_them_and_may_not_be_minimal() -> None:
    rng = random.Random(7)
    names = [PartyName(f"p{at}") for at in range(400)]
    waits = [Wait(waiter=name, among=tuple(rng.sample(names, 3)), needs=3) for name in names]
    columns, found = cure(waits)
    assert not found.exact
    assert frees(waits, columns.named(found.parties))
    everybody = [Wait(waiter=name, among=tuple(n for n in names[:60] if n != name), needs=59) for name in names[:60]]
    columns, found = cure(everybody)
    assert frees(everybody, columns.named(found.parties))
    assert len(found.parties) == 59, "a clique of AND waits needs all but one to give up"


@pytest.mark.parametrize("only", [0, 16, 39])
def test_in_a_large_core_the_abortable_parties_are_found_among_many_others(only: int) -> None:
    names = [PartyName(f"p{at}") for at in range(40)]
    ring = [Wait(waiter=name, among=(names[at - 1],)) for at, name in enumerate(names)]
    columns, found = cure(ring, frozenset(names) - {names[only]})
    assert columns.named(found.parties) == (names[only],)
