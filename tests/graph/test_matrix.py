"""Small matrices are searched without scipy, large ones with it: the same entries, components and reachable parties."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detector.graph import matrix as under_test
from detector.graph.columns import Ints
from detector.graph.matrix import Matrix, SmallRows, rows_of_ones, transposed

SIZE_MAX = 12
PARTIES = st.integers(0, SIZE_MAX - 1)
EDGES = st.lists(st.tuples(PARTIES, PARTIES), max_size=40)
ALL_PREDICATES = """
import sys
import detector.service.app
from detector.core.document.reader import read_document
from detector.core.registry import ask, find_predicate, predicate_names
processes = {name: {"activity": "blocked"} for name in "abcd"}
among = {"a/1": ["b/1", "b/2"], "b/1": ["c/1"], "b/2": ["c/1"], "c/1": ["a/1"], "d/1": ["a/1", "b/2"]}
waits = [{"waiter": waiter, "among": targets} for waiter, targets in among.items()]
snapshot = read_document({"processes": processes, "waits": waits})
found = {name: ask(find_predicate(name), snapshot) for name in predicate_names()}
print(found["deadlock"].holds.name, [name for name in sys.modules if name.startswith("scipy")])
"""
LISTS = st.lists(st.lists(PARTIES, unique=True, max_size=SIZE_MAX), max_size=20)


def matrix_of(edges: list[tuple[int, int]]) -> Matrix:
    rows, columns = np.asarray(edges, np.int32).reshape(-1, 2).T
    return Matrix.of(rows, columns, SIZE_MAX)


def rows_of(lists: list[list[int]]) -> tuple[Ints, Ints]:
    indptr = np.cumsum([0, *map(len, lists)], dtype=np.int32)
    return indptr, np.asarray([each for row in lists for each in sorted(row)], np.int32)


@settings(deadline=None)
@given(EDGES)
def test_the_search_of_small_matrices_gives_scipys_results(edges: list[tuple[int, int]]) -> None:
    small = matrix_of(edges)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(under_test, "SMALL_MAX", -1)
        large = matrix_of(edges)
        components = large.strong_components().tolist()
        reachable = [large.reachable(party).tolist() for party in range(SIZE_MAX)]
    assert small.indptr.tolist() == large.indptr.tolist()
    assert small.indices.tolist() == large.indices.tolist()
    assert small.loops().tolist() == (large.scipy().diagonal() > 0).tolist()
    assert small.strong_components().tolist() == components, "the order of equal cores in a verdict rests on the numbers"
    assert [small.reachable(party).tolist() for party in range(SIZE_MAX)] == reachable


@settings(deadline=None)
@given(LISTS, st.lists(st.booleans(), min_size=SIZE_MAX, max_size=SIZE_MAX))
def test_rows_are_counted_and_transposed_as_by_scipy(lists: list[list[int]], flags: list[bool]) -> None:
    indptr, indices = rows_of(lists)
    small = rows_of_ones(indptr, indices, SIZE_MAX, np.int8)
    begins, rows = transposed(indptr, indices, SIZE_MAX)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(under_test, "SMALL_MAX", -1)
        large = rows_of_ones(indptr, indices, SIZE_MAX, np.int8)
        turned = transposed(indptr, indices, SIZE_MAX)
    assert isinstance(small, SmallRows)
    assert not isinstance(large, SmallRows)
    vector = np.asarray(flags, np.int8)
    assert (small @ vector).tolist() == (large @ vector).tolist()
    assert (begins.tolist(), rows.tolist()) == (turned[0].tolist(), turned[1].tolist())


def test_no_parties() -> None:
    nobody = np.empty(0, np.int32)
    assert Matrix.of(nobody, nobody, 0).strong_components().tolist() == []


def test_a_long_chain_and_a_long_ring() -> None:
    size = under_test.SMALL_MAX
    chain = Matrix.of(np.arange(size - 1), np.arange(1, size), size)
    assert chain.strong_components().tolist() == list(range(size))[::-1]
    ring = Matrix.of(np.arange(size), (np.arange(size) + 1) % size, size)
    assert set(ring.strong_components().tolist()) == {0}
    assert ring.reachable(7).all()


def test_a_deadlock_is_found_without_scipy() -> None:
    """All that a detector imports, and each predicate on a ring of pools with a bystander."""
    done = subprocess.run([sys.executable, "-c", ALL_PREDICATES], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["TRUE", "[]"]
