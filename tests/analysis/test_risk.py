"""Risks are ranked by the probability that all pools of a cycle are full."""

from __future__ import annotations

import pytest

from detector.analysis.findings.risk import erlang_b, risks


@pytest.mark.parametrize(("servers", "load", "wanted"), [(1, 1.0, 0.5), (2, 1.0, 0.2), (10, 5.0, 0.018385), (3, 0.0, 0.0)])
def test_erlang_b(servers: int, load: float, wanted: float) -> None:
    assert erlang_b(servers, load) == pytest.approx(wanted, rel=1e-4)


def test_the_fullest_cycle_comes_first_and_unbounded_pools_make_none() -> None:
    edges = [("a", "b", 9), ("b", "a", 3), ("c", "d", 5), ("d", "c", 5), ("e", "e", 1), ("f", "a", 7), ("a", "f", 7)]
    pools = {"a": (2, 0.1, 0.0), "b": (2, 0.1, 0.0), "c": (2, 1.5, 0.4), "d": (2, 1.5, 0.5), "f": (None, 9.0, 0.0)}
    found = risks(edges, pools)
    assert [each.services for each in found] == [("c", "d"), ("a", "b")]
    assert found[1].samples == 3
    assert found[0].score == pytest.approx(0.2)


def test_the_advice_names_the_rarest_call_and_the_cheapest_pool() -> None:
    (found,) = risks([("a", "b", 9), ("b", "a", 3)], {"a": (8, 6.0, 0.0), "b": (2, 0.5, 0.0)})
    opened, grown = found.change.split("; or ")
    assert opened == "let b hold no worker while it calls a, or give a a separate pool for these calls"
    assert grown.startswith("give b 4 workers (2 now)")
    assert erlang_b(4, 0.5) <= 0.1 * erlang_b(2, 0.5) < erlang_b(3, 0.5)


def test_more_workers_are_not_advised_if_the_load_does_not_explain_the_full_pool() -> None:
    (found,) = risks([("a", "a", 1)], {"a": (4, 1.0, 0.9)})
    assert found.change == "let a hold no worker while it calls a, or give a a separate pool for these calls"
