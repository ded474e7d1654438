"""Graphs: expansion, back edges, pipelines, plans and regions, and which graphs are refused."""

from __future__ import annotations

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detector.checkpoints.graph.depth_first import back_edges, components, reached
from detector.checkpoints.graph.graph import DataflowGraph, Edge, Routing, Stage, StageName, index_of
from detector.checkpoints.graph.plan import plan
from detector.checkpoints.graph.region import Scheme, region
from stilltrue.fifo import channel
from stilltrue.model import ProcessName

NAMES = "abcdefg"
edges_of = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)), max_size=20).map(lambda e: sorted(set(e)))


def graph(*edges: str, parallelism: int = 1, routing: Routing = Routing.FORWARD) -> DataflowGraph:
    pairs = [(StageName(e[0]), StageName(e[1])) for e in edges]
    names = sorted({name for pair in pairs for name in pair})
    return DataflowGraph.of(
        [Stage(name=name, parallelism=parallelism) for name in names],
        [Edge(source=a, target=b, routing=routing) for a, b in pairs],
    )


@settings(deadline=None)
@given(edges_of)
def test_back_edges_are_exactly_those_that_close_cycles(edges: list[tuple[str, str]]) -> None:
    back = back_edges(list(NAMES), edges)
    rest: nx.DiGraph[str] = nx.DiGraph([edge for edge in edges if edge not in back])
    assert nx.is_directed_acyclic_graph(rest)
    for source, target in back:
        assert source == target or nx.has_path(rest, target, source), "a back edge leads to where its source is reached from"


@settings(deadline=None)
@given(edges_of)
def test_components_and_reach_are_those_of_networkx(edges: list[tuple[str, str]]) -> None:
    whole: nx.DiGraph[str] = nx.DiGraph(edges)
    whole.add_nodes_from(NAMES)
    assert components(list(NAMES), edges) == tuple(
        sorted(tuple(sorted(part)) for part in nx.weakly_connected_components(whole))
    )
    assert reached(["a"], edges) == {"a"} | nx.descendants(whole, "a")


def test_a_loop_is_a_back_edge_whatever_the_parallelism() -> None:
    looped = graph("sa", "ab", "ba", "bc", parallelism=2, routing=Routing.KEYED)
    assert looped.back == {channel(f"b-{i}", f"a-{j}") for i in (1, 2) for j in (1, 2)}
    assert graph("aa", "sa").back == {channel("a-1", "a-1")}


def test_stages_and_edges_expand_to_vertices_and_channels_by_routing() -> None:
    forward = graph("ab", parallelism=3)
    assert forward.topology.channels == tuple(channel(f"a-{i}", f"b-{i}") for i in (1, 2, 3))
    assert len(graph("ab", parallelism=3, routing=Routing.REBALANCE).topology.channels) == 9
    assert forward.sources() == ("a-1", "a-2", "a-3")
    assert [index_of(name) for name in forward.sources()] == [0, 1, 2]
    assert forward.pipelines() == (("a-1", "b-1"), ("a-2", "b-2"), ("a-3", "b-3"))


A, B = StageName("a"), StageName("b")


@pytest.mark.parametrize(
    ("stages", "edges", "message"),
    [
        ([Stage(name=A), Stage(name=A)], [], "duplicate stage name"),
        ([Stage(name=A, parallelism=0)], [], "stage a: parallelism must be at least 1"),
        ([Stage(name=A)], [Edge(source=A, target=B)], "names b, which is not a stage"),
        ([Stage(name=A), Stage(name=B)], [Edge(source=A, target=B)] * 2, "duplicate edge"),
        ([Stage(name=A, parallelism=2), Stage(name=B)], [Edge(source=A, target=B)], "FORWARD between different"),
        ([Stage(name=A), Stage(name=B)], [Edge(source=B, target=B)], "no source reaches stage b"),
    ],
)
def test_an_invalid_graph_is_refused(stages: list[Stage], edges: list[Edge], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DataflowGraph.of(stages, edges)


def names(text: str) -> tuple[ProcessName, ...]:
    return tuple(ProcessName(f"{letter}-1") for letter in text)


def test_the_plan_starts_at_vertices_without_running_inputs() -> None:
    one = graph("sa", "ta", "ab", "ba", "bc")
    everybody = one.topology.processes
    assert plan(one, everybody, ()).begin == names("st")
    made = plan(one, everybody, names("s"))
    assert (made.begin, made.finished) == (names("t"), names("s"))
    assert made.acknowledge == names("abct")
    assert channel("s-1", "a-1") not in made.topology.channels
    assert plan(one, everybody, names("st")).begin == names("a"), "the back edge alone keeps nobody from beginning"


def test_the_region_of_a_failure() -> None:
    both = graph("sa", "ab", "tb", "bc", "xy")
    exact = region(both, ProcessName("a-1"))
    assert (exact.restart, exact.untouched, exact.drop_repeats) == (names("abcst"), names("xy"), ())
    partial = region(both, ProcessName("a-1"), Scheme.UPSTREAM)
    assert (partial.restart, partial.drop_repeats, partial.untouched) == (names("as"), names("b"), names("ctxy"))
    with pytest.raises(ValueError, match="there is no vertex z"):
        region(both, ProcessName("z"))
