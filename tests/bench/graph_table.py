"""The table of docs/graph.md: the reduction beside plain Python and the general graph libraries, on the same graphs.

    .venv/bin/pip install rustworkx igraph
    PYTHONPATH=. .venv/bin/python tests/bench/graph_table.py --parties 1000000

Ours: from the columns to the remainder. Theirs: from their own finished graph to its strong components, which is less than
an answer. The best of three or more, in milliseconds of processor time. With up to 100,000 parties every remainder is
compared with plain Python's.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
import tracemalloc
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

sys.path.insert(0, str(Path(__file__).parent))
WORLDS: dict[str, Callable[[int], Any]] = import_module("graph_worlds").WORLDS

from detector.graph.columns import WaitColumns  # noqa: E402 - after the path is set
from detector.graph.reduction import reduce  # noqa: E402

CHECKED_PARTIES_MAX = 100_000
PLAIN_PARTIES_MAX = 1_000_000


def plain(waits: WaitColumns) -> list[int]:
    """The textbook's work list in plain Python, on lists that are made beforehand."""
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


def scipy_components(waits: WaitColumns) -> Callable[[], object]:
    pairs, size = edges(waits), len(waits.names)
    graph = csr_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(size, size))
    graph.sum_duplicates()
    return lambda: connected_components(graph, connection="strong")


def igraph_components(waits: WaitColumns) -> Callable[[], object]:
    graph = import_module("igraph").Graph(n=len(waits.names), edges=edges(waits), directed=True)
    return lambda: graph.connected_components(mode="strong")


def rustworkx_components(waits: WaitColumns) -> Callable[[], object]:
    library = import_module("rustworkx")
    graph = library.PyDiGraph()
    graph.add_nodes_from(range(len(waits.names)))
    graph.add_edges_from_no_data(list(map(tuple, edges(waits).tolist())))
    return lambda: library.number_strongly_connected_components(graph)


def networkx_components(waits: WaitColumns) -> Callable[[], object]:
    library = import_module("networkx")
    graph = library.DiGraph(edges(waits).tolist())
    return lambda: sum(1 for _ in library.strongly_connected_components(graph))


LIBRARIES: dict[str, tuple[Callable[[WaitColumns], Callable[[], object]], int]] = {
    "scipy": (scipy_components, 10_000_000),
    "igraph": (igraph_components, 1_000_000),
    "rustworkx": (rustworkx_components, 1_000_000),
    "networkx": (networkx_components, 100_000),
}


def milliseconds(work: Callable[[], object], times: int = 3, enough_seconds: float = 0.05) -> float:
    """The best of at least ``times``, and of as many as ``enough_seconds`` hold: short runs are noisy."""
    best, spent, done = float("inf"), 0.0, 0
    gc.collect()
    while done < times or (times > 1 and spent < enough_seconds):
        begun = time.process_time()
        work()
        last = time.process_time() - begun
        best, spent, done = min(best, last), spent + last, done + 1
    return best * 1e3


def bytes_a_target(waits: WaitColumns) -> float:
    tracemalloc.start()
    reduce(waits)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / max(len(waits.targets), 1)


def row(name: str, waits: WaitColumns, libraries: list[str]) -> str:
    size = len(waits.names)
    left = reduce(waits).remainder()
    if size <= CHECKED_PARTIES_MAX:
        assert left.tolist() == plain(waits), f"{name}: the remainders differ"
    cells = [name, f"{len(waits.targets):,}", f"{len(left):,}", f"{milliseconds(lambda: reduce(waits)):.1f}"]
    cells.append(f"{milliseconds(lambda: plain(waits), 1):,.0f}" if size <= PLAIN_PARTIES_MAX else "-")
    for library in libraries:
        make, parties_max = LIBRARIES[library]
        cells.append(f"{milliseconds(make(waits)):.1f}" if size <= parties_max else "-")
    return f"| {' | '.join([*cells, f'{bytes_a_target(waits):.0f}'])} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parties", type=int, default=100_000)
    parser.add_argument("--libraries", nargs="*", default=list(LIBRARIES), choices=list(LIBRARIES))
    parser.add_argument("--worlds", nargs="*", default=list(WORLDS), help="the first letters of some worlds' names")
    chosen = parser.parse_args()
    head = ["world", "targets", "remainder", "**ours**", "plain Python", *chosen.libraries, "peak bytes a target"]
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for name, make in WORLDS.items():
        if any(name.startswith(begin) for begin in chosen.worlds):
            print(row(name, make(chosen.parties), chosen.libraries), flush=True)


if __name__ == "__main__":
    main()
