"""Waits as columns: any order of the input gives the same bytes, and every wait survives a round trip."""

from __future__ import annotations

import random
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detector.graph.columns import WaitColumns, WaitError
from stilltrue.model import PartyName, Wait, WaitNumber

NAMES = st.sampled_from([PartyName(name) for name in ("a", "a/x", "a/x#1", "a/x#10", "a/x#2", "b", "Ω/ω")])


@st.composite
def waits(draw: st.DrawFn) -> Wait:
    among = tuple(draw(st.lists(NAMES, min_size=1, max_size=4)))
    return Wait(
        waiter=draw(NAMES),
        among=among,
        needs=draw(st.integers(1, len(set(among)))),
        deadline=draw(st.none() | st.floats(0, 2e9)),
        since=draw(st.none() | st.floats(0, 2e9)),
        number=draw(st.none() | st.integers(0, 3).map(WaitNumber)),
        uncoloured=draw(st.booleans()),
        what=draw(st.sampled_from(["", "a worker", "the reply"])),
    )


def image(columns: WaitColumns) -> list[object]:
    """All contents of the columns, comparable byte by byte."""
    values = (getattr(columns, field.name) for field in fields(columns))
    return [(value.dtype, value.tobytes()) if isinstance(value, np.ndarray) else value for value in values]


@settings(max_examples=100, deadline=None)
@given(st.lists(waits(), max_size=12), st.randoms(use_true_random=False))
def test_any_order_gives_the_same_bytes(rows: list[Wait], rng: random.Random) -> None:
    mixed = [replace(row, among=tuple(rng.sample(row.among, len(row.among)))) for row in rows]
    rng.shuffle(mixed)
    assert image(WaitColumns.of(mixed)) == image(WaitColumns.of(rows))


@settings(deadline=None)
@given(st.lists(waits(), max_size=12))
def test_every_wait_survives_with_sorted_distinct_targets(rows: list[Wait]) -> None:
    back = list(WaitColumns.of(rows))
    assert sorted(map(repr, back)) == sorted(repr(replace(row, among=tuple(sorted(set(row.among))))) for row in rows)


def test_a_name_given_twice_counts_once() -> None:
    twice = Wait(waiter=PartyName("a"), among=(PartyName("b"), PartyName("b")), needs=2)
    with pytest.raises(WaitError, match="between 1 and 1") as raised:
        WaitColumns.of([replace(twice, needs=1), twice])
    assert (raised.value.index, raised.value.key) == (1, "needs")


@pytest.mark.parametrize("needs", [0, -1, 2, 2**31, 2**80, -(2**80)])
def test_needs_out_of_range_is_refused(needs: int) -> None:
    with pytest.raises(WaitError, match="needs: must be between 1 and 1"):
        WaitColumns.of([Wait(waiter=PartyName("a"), among=(PartyName("b"),), needs=needs)])


def test_a_wait_without_targets_is_refused() -> None:
    with pytest.raises(WaitError, match="among: must name at least one party"):
        WaitColumns.of([Wait(waiter=PartyName("a"), among=(), needs=1)])


def test_a_graph_without_waits_is_valid() -> None:
    columns = WaitColumns.of([])
    assert (len(columns), columns.names, list(columns.waits())) == (0, (), [])


def test_small_graphs_use_small_integers() -> None:
    columns = WaitColumns.of([Wait(waiter=PartyName("a"), among=(PartyName("b"),))])
    assert {columns.waiter.dtype, columns.needs.dtype, columns.indptr.dtype, columns.targets.dtype} == {np.dtype(np.int32)}
