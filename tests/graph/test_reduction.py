"""The reduction, compared with a textbook version in plain Python, in any order and stage by stage."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detector.graph import open_waits, reachability, reduction, sweep, worklist
from detector.graph.columns import WaitColumns, columns_of_lists
from detector.graph.reduction import reduce
from stilltrue.model import PartyName, Wait


def plain(waits: Sequence[Wait], *, ended: Collection[int] = (), held: Collection[str] = ()) -> list[str]:
    """The textbook reduction: examine all parties until no more are freed."""
    parties = {name for wait in waits for name in (wait.waiter, *wait.among)}
    free: set[str] = set()
    while True:
        freed = {
            party
            for party in parties - free - set(held)
            if all(
                at in ended or len(free.intersection(wait.among)) >= wait.needs
                for at, wait in enumerate(waits)
                if wait.waiter == party
            )
        }
        if not freed:
            return sorted(parties - free)
        free |= freed


@st.composite
def graphs(draw: st.DrawFn) -> list[Wait]:
    """k-of-n graphs of up to a dozen parties, with self-waits, repeated targets and several waits of one waiter."""
    names = [PartyName(f"p{at}") for at in range(draw(st.integers(1, 12)))]
    waits = []
    for _ in range(draw(st.integers(0, 16))):
        among = tuple(draw(st.lists(st.sampled_from(names), min_size=1, max_size=4)))
        needs = draw(st.integers(1, len(set(among))))
        waits.append(Wait(waiter=draw(st.sampled_from(names)), among=among, needs=needs))
    return waits


def remainder(columns: WaitColumns, **known: np.ndarray) -> list[str]:
    return list(columns.named(reduce(columns, **known).remainder()))


@settings(max_examples=120, deadline=None)
@given(graphs())
def test_the_reduction_equals_the_textbook_algorithm(waits: list[Wait]) -> None:
    assert remainder(WaitColumns.of(waits)) == plain(waits)


@settings(max_examples=100, deadline=None)
@given(graphs(), st.randoms(use_true_random=False))
def test_each_stage_equals_a_reduction_from_the_start(waits: list[Wait], rng: random.Random) -> None:
    columns = WaitColumns.of(waits)
    held = np.array([rng.random() < 0.3 for _ in columns.names], np.bool_)
    ended = np.array([rng.random() < 0.3 for _ in range(len(columns))], np.bool_)
    rows = list(columns.waits())
    names, gone = set(np.array(columns.names)[held]), set(np.flatnonzero(ended).tolist())

    first = reduce(columns, held=held)
    assert list(columns.named(first.remainder())) == plain(rows, held=names)
    second = first.further(ended=ended)
    assert list(columns.named(second.remainder())) == plain(rows, ended=gone, held=names)
    assert remainder(columns, ended=ended, held=held) == plain(rows, ended=gone, held=names)
    third = second.further(released=held)
    own = {at for at, row in enumerate(rows) if row.waiter in names}
    assert list(columns.named(third.remainder())) == plain(rows, ended=gone | own)
    assert list(columns.named(first.remainder())) == plain(rows, held=names), "a stage must not change the one before it"


@settings(max_examples=100, deadline=None)
@given(graphs(), st.randoms(use_true_random=False))
def test_every_phase_gives_the_same_remainder(waits: list[Wait], rng: random.Random) -> None:
    columns = WaitColumns.of(waits)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweep, "MANY_SHARE", rng.choice([0, 1, 10**9]))
        patch.setattr(sweep, "COMPACT_WAITS_MIN", rng.choice([0, 10**9]))
        patch.setattr(sweep, "FEW_SHARE", rng.choice([0, 1, 10**9]))
        patch.setattr(sweep, "FEW_SWEEPS_MAX", rng.choice([0, 1, 10**9]))
        patch.setattr(sweep, "SWEEPS_MAX", rng.choice([1, 2, 64]))
        patch.setattr(open_waits, "PIECE_TARGETS", rng.choice([1, 2, 3, 1 << 19]))
        patch.setattr(open_waits, "COUNT_BYTE_MAX", rng.choice([0, 126]))
        patch.setattr(reduction, "SEARCHES_MAX", rng.choice([0, 1, 8]))
        patch.setattr(reachability, "WAITS_MIN", rng.choice([0, 10**9]))
        patch.setattr(worklist, "FRONTIER_PARTIES_MIN", rng.choice([1, 2, 10**9]))
        assert remainder(columns) == plain(waits)
        assert list(columns.named(reduction.remainder(columns))) == plain(waits)
        held = np.array([rng.random() < 0.3 for _ in columns.names], np.bool_)
        names = set(np.array(columns.names)[held])
        rows = list(columns.waits())
        first = reduce(columns, held=held)
        assert list(columns.named(first.remainder())) == plain(rows, held=names)
        own = {at for at, row in enumerate(rows) if row.waiter in names}
        assert list(columns.named(first.further(released=held).remainder())) == plain(rows, ended=own)


@pytest.mark.parametrize("ladder", [1, 2, 3])
def test_a_long_ladder_is_freed_to_its_end(ladder: int) -> None:
    """Each party waits for all of the ``ladder`` before it, so each round frees one party."""
    size = 30_000
    names = [f"{at:06}" for at in range(size)]
    columns = columns_of_lists(
        waiters=names[ladder:],
        needs=[ladder] * (size - ladder),
        sizes=[ladder] * (size - ladder),
        among=[names[at - back] for at in range(ladder, size) for back in range(1, ladder + 1)],
    )
    assert len(reduce(columns).remainder()) == 0


def test_the_reduction_equals_the_textbook_algorithm_on_large_random_graphs() -> None:
    for seed in range(6):
        rng = random.Random(seed)
        names = [PartyName(f"p{at}") for at in range(3_000)]
        waits = [_random_wait(rng, name, names) for name in rng.sample(names, 2_600)]
        assert remainder(WaitColumns.of(waits)) == _worklist(waits), f"seed {seed}"


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["chain", "round trips", "ladder", "with rings", "two waits each"])
def test_the_reduction_equals_the_textbook_algorithm_on_long_paths(kind: str, seed: int) -> None:
    """Paths of thousands of parties, which need searches: cycles on them, beside them, and parties that wait twice."""
    rng = random.Random(seed)
    names = [PartyName(f"p{at:05}") for at in rng.sample(range(4_000), 4_000)]
    back = {"chain": [1], "round trips": [1, -1], "ladder": [1, 2, 3], "with rings": [1], "two waits each": [1]}[kind]
    waits = [
        Wait(waiter=names[at], among=tuple(names[(at - step) % 4_000] for step in back), needs=2 if kind == "ladder" else 1)
        for at in range(3, 4_000)
    ]
    if kind == "with rings":
        waits = [wait for at, wait in enumerate(waits) if at % 900]  # the first party of each path waits for nothing, and ...
        waits += [Wait(waiter=names[3], among=(names[500],))]  # ... the first path closes a cycle
    if kind == "two waits each":
        extra = [Wait(waiter=names[at], among=(names[at - 2],)) for at in range(10, 4_000)]
        assert remainder(WaitColumns.of(waits + extra)) == []
        stuck = Wait(waiter=names[2_000], among=(names[2_010],))
        assert remainder(WaitColumns.of([*waits, *extra, stuck])) == sorted(names[2_000:])
        return
    rng.shuffle(waits)
    assert remainder(WaitColumns.of(waits)) == _worklist(waits)


def _random_wait(rng: random.Random, waiter: PartyName, names: list[PartyName]) -> Wait:
    among = tuple(rng.sample(names, rng.choice([1, 1, 2, 3])))
    return Wait(waiter=waiter, among=among, needs=rng.randint(1, len(among)))


def _worklist(waits: list[Wait]) -> list[str]:
    """Like :func:`plain`, for one wait per waiter, fast enough for thousands."""
    needs = {wait.waiter: wait.needs for wait in waits}
    waiters: dict[str, list[str]] = {}
    for wait in waits:
        for target in wait.among:
            waiters.setdefault(target, []).append(wait.waiter)
    todo = sorted(set(waiters) - set(needs))
    while todo:
        for waiter in waiters.get(todo.pop(), []):
            needs[PartyName(waiter)] -= 1
            if needs[PartyName(waiter)] == 0:
                todo.append(waiter)
    return sorted(waiter for waiter, short in needs.items() if short > 0)
