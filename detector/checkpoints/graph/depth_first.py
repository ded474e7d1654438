"""Depth-first search over named edges: back edges, reachability, connected components."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TypeVar

Name = TypeVar("Name", bound=str)


def back_edges(starts: Sequence[Name], edges: Collection[tuple[Name, Name]]) -> frozenset[tuple[Name, Name]]:
    """Return the edges to a name on the current search path; without them the graph has no cycle.

    Parameters
    ----------
    starts : the names to search from, in this order; neighbours are visited in sorted order, so the result is deterministic.
    edges : pairs (source, target).

    Notes
    -----
    For loops with a single entry the result does not depend on the order. A self-loop is a back edge.

    References
    ----------
    Carbone et al. 2015, "Lightweight Asynchronous Snapshots for Distributed Dataflows", on cyclic graphs: back edges are
    identified statically, by depth-first search, before the snapshot algorithm runs.
    """
    following = _following(edges)
    found: set[tuple[Name, Name]] = set()
    finished: set[Name] = set()
    on_path: dict[Name, Iterable[Name]] = {}
    for start in starts:
        if start in finished:
            continue
        on_path[start] = iter(following.get(start, ()))
        while on_path:
            here, rest = next(reversed(on_path.items()))
            target = next(iter(rest), None)
            if target is None:
                finished.add(here)
                del on_path[here]
            elif target in on_path:
                found.add((here, target))
            elif target not in finished:
                on_path[target] = iter(following.get(target, ()))
    return frozenset(found)


def reached(starts: Iterable[Name], edges: Collection[tuple[Name, Name]]) -> set[Name]:
    """Return all names that can be reached from ``starts``, including these."""
    following = _following(edges)
    found = set(starts)
    ahead = sorted(found)
    while ahead:
        for target in following.get(ahead.pop(), ()):
            if target not in found:
                found.add(target)
                ahead.append(target)
    return found


def components(names: Sequence[Name], edges: Collection[tuple[Name, Name]]) -> tuple[tuple[Name, ...], ...]:
    """Return the weakly connected components; each sorted, in the order of their first names."""
    both_ways = [*edges, *((target, source) for source, target in edges)]
    found: list[tuple[Name, ...]] = []
    seen: set[Name] = set()
    for name in sorted(names):
        if name not in seen:
            part = reached([name], both_ways)
            seen |= part
            found.append(tuple(sorted(part)))
    return tuple(found)


def _following(edges: Collection[tuple[Name, Name]]) -> dict[Name, list[Name]]:
    following: dict[Name, list[Name]] = {}
    for source, target in sorted(edges):
        following.setdefault(source, []).append(target)
    return following
