"""The table of docs/graph.md: the reduction beside plain Python and the general graph libraries, on the same graphs.

    .venv/bin/python tests/bench/graph_table.py --write docs/graph.md

(with the extra `bench`). Ours: from the columns to the remainder. Theirs: to the strong components, which is less than an
answer; the search alone in their own finished graph and, in brackets, with building that graph from the same columns.
Milliseconds of processor time, the best of several runs if one is short. A run that would take longer than --seconds-max,
according to a smaller one, is left out. With up to 100,000 parties every remainder is compared with plain Python's.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

sys.path.insert(0, str(Path(__file__).parent))
WORLDS: dict[str, Callable[[int], Any]] = import_module("graph_worlds").WORLDS

from detector.graph.columns import WaitColumns  # noqa: E402 - after the path is set
from detector.graph.reduction import remainder  # noqa: E402

CHECKED_PARTIES_MAX = 100_000
ENOUGH_SECONDS = 0.1
BEGIN, END = "<!-- table: begin -->\n", "<!-- table: end -->\n"
Graph = Any


def plain(waits: WaitColumns) -> list[int]:
    """The textbook's work list in plain Python."""
    short, waiter = waits.needs.tolist(), waits.waiter.tolist()
    ups: list[list[int]] = [[] for _ in waits.names]
    rows = np.repeat(np.arange(len(waits)), waits.sizes()).tolist()
    for wait, target in zip(rows, waits.targets.tolist(), strict=True):
        ups[target].append(wait)
    stuck = set(waiter)
    todo = [party for party in range(len(waits.names)) if party not in stuck]
    while todo:
        for wait in ups[todo.pop()]:
            short[wait] -= 1
            if short[wait] == 0:
                stuck.discard(waiter[wait])
                todo.append(waiter[wait])
    return sorted(stuck)


def edges(waits: WaitColumns) -> np.ndarray[Any, Any]:
    return np.stack((np.repeat(waits.waiter, waits.sizes()), waits.targets), axis=1)


def scipy_graph(waits: WaitColumns) -> Graph:
    size = len(waits.names)
    rows = np.repeat(waits.waiter, waits.sizes())
    graph = csr_array((np.ones(len(rows)), (rows, waits.targets)), shape=(size, size))
    graph.sum_duplicates()
    return graph


def igraph_graph(waits: WaitColumns) -> Graph:
    return import_module("igraph").Graph(n=len(waits.names), edges=edges(waits), directed=True)


def rustworkx_graph(waits: WaitColumns) -> Graph:
    graph = import_module("rustworkx").PyDiGraph()
    graph.add_nodes_from(range(len(waits.names)))
    graph.add_edges_from_no_data(list(map(tuple, edges(waits).tolist())))
    return graph


def networkx_graph(waits: WaitColumns) -> Graph:
    graph = import_module("networkx").DiGraph()
    graph.add_nodes_from(range(len(waits.names)))
    graph.add_edges_from(edges(waits).tolist())
    return graph


LIBRARIES: dict[str, tuple[Callable[[WaitColumns], Graph], Callable[[Graph], object]]] = {
    "scipy": (scipy_graph, lambda graph: connected_components(graph, connection="strong")),
    "igraph": (igraph_graph, lambda graph: graph.connected_components(mode="strong")),
    "rustworkx": (rustworkx_graph, lambda graph: import_module("rustworkx").strongly_connected_components(graph)),
    "networkx": (networkx_graph, lambda graph: sum(1 for _ in import_module("networkx").strongly_connected_components(graph))),
}


def seconds(work: Callable[[], object], times: int = 5) -> float:
    """The best of so many runs, of fewer where one is long, of more where one is very short: those are noisy."""
    best, spent, done = float("inf"), 0.0, 0
    gc.collect()
    while spent < ENOUGH_SECONDS or (done < times and spent < 2 * times * ENOUGH_SECONDS):
        begun = time.process_time()
        work()
        last = time.process_time() - begun
        best, spent, done = min(best, last), spent + last, done + 1
    return best


def bytes_a_target(waits: WaitColumns) -> float:
    """The most memory that the reduction takes beside the columns."""
    tracemalloc.start()
    remainder(waits)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / max(len(waits.targets), 1)


class Table:
    """Rows of one size after the other; remembers what took how long, to leave out what would take too long."""

    def __init__(self, libraries: list[str], seconds_max: float) -> None:
        self._libraries = [library for library in libraries if import_module(library)]  # so that no time is an import's
        self._seconds_max = seconds_max
        self._took: dict[tuple[str, str], tuple[int, float]] = {}

    def head(self) -> str:
        words = ["world", "targets", "remainder", "**ours**", "plain Python", *self._libraries]
        words += ["of the fastest", "bytes a target"]
        return f"| {' | '.join(words)} |\n|{'---|' * len(words)}"

    def row(self, name: str, waits: WaitColumns) -> str:
        left = remainder(waits)
        if len(waits.names) <= CHECKED_PARTIES_MAX:
            assert left.tolist() == plain(waits), f"{name}: the remainders differ"
        ours = seconds(lambda: remainder(waits))
        cells = [name, f"{len(waits.targets):,}", f"{len(left):,}", f"**{shown(ours)}**"]
        cells.append(self._within("plain Python", name, waits, lambda: (seconds(lambda: plain(waits)),))[0])
        searches, wholes = [], []
        for library in self._libraries:
            text, *took = self._within(library, name, waits, partial(searched, library, waits))
            cells.append(text)
            if took:
                searches.append(took[0])
                wholes.append(took[1])
        cells.append(f"{ours / min(searches):.2f} ({ours / min(wholes):.2f})" if searches else "-")
        return f"| {' | '.join([*cells, f'{bytes_a_target(waits):.0f}'])} |"

    def _within(self, who: str, name: str, waits: WaitColumns, work: Callable[[], tuple[float, ...]]) -> tuple[Any, ...]:
        """The cell's text and the times; the text alone when it would take too long."""
        size = len(waits.targets)
        before, took = self._took.get((who, name), (size, 0.0))
        projected = took * size / before
        if projected > self._seconds_max:
            return (f"(about {projected:.0f} s)",)
        times = work()
        self._took[who, name] = size, sum(times)
        search, *whole = times
        return (f"{shown(search)} ({shown(whole[0])})" if whole else shown(search), *times)


def searched(library: str, waits: WaitColumns) -> tuple[float, float]:
    """How long the library's search takes, and how long with the making of its graph."""
    make, search = LIBRARIES[library]
    begun = time.process_time()
    graph = make(waits)
    made = time.process_time() - begun
    if made < ENOUGH_SECONDS:
        made = seconds(lambda: make(waits))
    alone = seconds(lambda: search(graph), times=3)
    return alone, made + alone


def shown(took: float) -> str:
    """Milliseconds."""
    digits = 2 if took < 1e-3 else 1 if took < 0.1 else 0
    return f"{took * 1e3:,.{digits}f}"


def report(sizes: list[int], worlds: list[str], libraries: list[str], seconds_max: float) -> Iterator[str]:
    """The tables as Markdown, line by line."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("numpy", *libraries))
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    yield f"Python {platform.python_version()}, {versions}; {cores} cores, load {load:.1f} at the beginning."
    table = Table(libraries, seconds_max)
    for size in sizes:
        yield f"\n{size:,} parties:\n\n{table.head()}"
        for name, make in WORLDS.items():
            if any(name.startswith(begin) for begin in worlds):
                yield table.row(name, make(size))
    yield f"\nLoad {os.getloadavg()[0]:.1f} at the end."


def main() -> None:
    """Print the tables, and put them in their place in a document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parties", type=int, nargs="*", default=[10_894, 1_000_000, 2_000_000])
    parser.add_argument("--libraries", nargs="*", default=list(LIBRARIES), choices=list(LIBRARIES))
    parser.add_argument("--worlds", nargs="*", default=list(WORLDS), help="the first letters of some worlds' names")
    parser.add_argument("--seconds-max", type=float, default=8.0, help="a library that would take longer is left out")
    parser.add_argument("--write", type=Path, help="the document whose table to replace, between its two marks")
    chosen = parser.parse_args()
    lines = []
    for line in report(sorted(chosen.parties), chosen.worlds, chosen.libraries, chosen.seconds_max):
        print(line, flush=True)
        lines.append(line)
        if chosen.write:
            put(lines, chosen.write)


def put(lines: list[str], document: Path) -> None:
    """Put the table in its place, between its two marks."""
    before, _, rest = document.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    assert after, f"{document} has no table to replace"
    document.write_text("".join((before, BEGIN, "\n".join(lines), "\n", END, after)), encoding="utf-8")


if __name__ == "__main__":
    main()
