"""Exports wait-for graphs to other programs, as a networkx graph, GraphML, or JSON nodes and links."""

from __future__ import annotations

import json
from typing import Any, TypeAlias

import networkx as nx

from detector.core.snapshot import Snapshot
from detector.drawing.canvas import INVALID
from detector.drawing.scene import label_of
from detector.graph.columns import WaitColumns
from stilltrue.model import Holds, Verdict

Graph: TypeAlias = "nx.MultiDiGraph[str]"


def to_networkx(waits: WaitColumns, now: float | None = None) -> Graph:
    """Convert waits to a networkx graph: a node for each party, an edge from the waiter to each target.

    Parameters
    ----------
    waits : the waits.
    now : seconds since the epoch, for the labels; None omits the times.

    Returns
    -------
    networkx.MultiDiGraph
        Edges carry ``wait`` (the wait's index, which all its edges share), ``needs``, ``of``, ``label``, ``uncoloured``, and
        ``deadline``, ``since``, ``number`` if the wait has them.

    Examples
    --------
    >>> from stilltrue.model import PartyName, Wait
    >>> graph = to_networkx(WaitColumns.of([Wait(waiter=PartyName("a"), among=(PartyName("b"), PartyName("c")))]))
    >>> sorted(graph.edges())
    [('a', 'b'), ('a', 'c')]
    """
    graph: Graph = nx.MultiDiGraph()
    graph.add_nodes_from(waits.names)
    for at, wait in enumerate(waits.waits()):
        optional = {"deadline": wait.deadline, "since": wait.since, "number": wait.number}
        data: dict[str, Any] = {"wait": at, "needs": wait.needs, "of": len(wait.among), "label": label_of(wait, now)}
        data |= {"uncoloured": wait.uncoloured} | {key: value for key, value in optional.items() if value is not None}
        graph.add_edges_from((wait.waiter, target, data) for target in wait.among)
    return graph


def graphml_of(snapshot: Snapshot, verdict: Verdict) -> str:
    """The whole wait-for graph as GraphML, each party with its ``role``."""
    graph = _with_roles(snapshot, verdict)
    clean = nx.relabel_nodes(graph, {name: INVALID.sub("?", name) for name in graph})
    for _, _, data in clean.edges(data=True):
        data["label"] = INVALID.sub("?", data["label"])
    return "\n".join(nx.generate_graphml(clean)) + "\n"


def links_of(snapshot: Snapshot, verdict: Verdict) -> str:
    """The whole wait-for graph as JSON, in networkx's node-link form."""
    return json.dumps(nx.node_link_data(_with_roles(snapshot, verdict), edges="links")) + "\n"


def _with_roles(snapshot: Snapshot, verdict: Verdict) -> Graph:
    graph = to_networkx(snapshot.waits, snapshot.ref.ended)
    core, behind = frozenset(verdict.core), frozenset(verdict.behind)
    other = "undetermined" if verdict.holds is Holds.UNDETERMINED else "not deadlocked"
    for party, data in graph.nodes(data=True):
        data["role"] = "core" if party in core else "behind" if party in behind else other
    return graph
