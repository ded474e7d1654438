"""The router: the channels of a record for every routing; and invalid jobs."""

from __future__ import annotations

import pytest

from detector.checkpoints.graph.graph import DataflowGraph, Edge, Routing, Stage, StageName
from detector.checkpoints.graph.job import Job
from detector.checkpoints.graph.key_groups import owner_of
from detector.checkpoints.graph.router import Router
from detector.checkpoints.protocol.points import Record
from detector.checkpoints.runtime.operators import Collected, SplitSource
from stilltrue.model import ProcessName

SRC, OUT = StageName("src"), StageName("out")


def job(routing: Routing) -> Job:
    graph = DataflowGraph.of(
        [Stage(name=SRC, parallelism=3), Stage(name=OUT, parallelism=3)], [Edge(source=SRC, target=OUT, routing=routing)]
    )
    return Job(graph=graph, make={SRC: lambda place: SplitSource({}, place), OUT: Collected}, keys={(SRC, OUT): str})


def targets(routing: Routing, values: list[str], to: str | None = None) -> list[str]:
    router = Router(job(routing), ProcessName("src-2"))
    for value in values:
        router.emit(value, to=to)
    return [on.target for on, _ in router.taken()]


def test_every_routing_chooses_its_channels() -> None:
    assert targets(Routing.FORWARD, ["a", "b"]) == ["out-2", "out-2"]
    assert targets(Routing.REBALANCE, ["a", "b", "c", "d"]) == ["out-1", "out-2", "out-3", "out-1"]
    assert targets(Routing.BROADCAST, ["a"]) == ["out-1", "out-2", "out-3"]
    keys = [f"k{n}" for n in range(20)]
    assert targets(Routing.KEYED, keys) == [f"out-{owner_of(key, 3) + 1}" for key in keys]
    assert targets(Routing.FORWARD, ["a"], to="out") == ["out-2"]


def test_a_keyed_record_carries_its_key_and_is_taken_once() -> None:
    router = Router(job(Routing.KEYED), ProcessName("src-1"))
    router.emit("word")
    assert [record for _, record in router.taken()] == [Record(value="word", key="word")]
    assert router.taken() == []


def test_an_unknown_edge_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no edge from src-2 to stage elsewhere"):
        targets(Routing.FORWARD, ["a"], to="elsewhere")


def test_an_incomplete_job_is_refused() -> None:
    whole = job(Routing.KEYED)
    with pytest.raises(ValueError, match="no factory for stage src"):
        Job(graph=whole.graph, make={OUT: whole.make[OUT]})
    with pytest.raises(ValueError, match="edge src -> out is KEYED and has no key"):
        Job(graph=whole.graph, make=whole.make)
