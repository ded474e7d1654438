"""Converts points of a graph to points of the same graph with other parallelisms.

KEYED states are redistributed by key group, and SPLIT states item by item; WHOLE states stay at their vertex, so their stage
keeps its parallelism. Records in transit go to the vertex that now owns their key. Records that one vertex had sent stay in one
channel and in order, so the order within a key is preserved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from detector.checkpoints.graph.graph import DataflowGraph, Routing, Sharing, Stage, StageName, index_of, vertices_of
from detector.checkpoints.graph.key_groups import owner_of
from detector.checkpoints.protocol.points import CompletedPoint, Record, State, Value
from stilltrue.fifo import Channel
from stilltrue.model import ProcessName


class RescaleError(ValueError):
    """A point cannot be converted to the new graph; the message names the stage or channel and the reason."""


def rescaled(points: Iterable[CompletedPoint], old: DataflowGraph, new: DataflowGraph) -> tuple[CompletedPoint, ...]:
    """Convert ``points``, one for each pipeline of ``old``, to points of ``new``'s pipelines.

    Raises RescaleError if the stages differ, a pipeline's point is missing, a WHOLE stage changes its parallelism, a state does
    not match its stage's sharing, or a broadcast was in transit.
    """
    given = list(points)
    states = {name: state for point in given for name, state in point.states.items()}
    if sorted(states) != list(old.topology.processes):
        raise RescaleError("the points do not cover the old graph's vertices")
    before = {stage.name: stage for stage in old.stages}
    if sorted(before) != sorted(stage.name for stage in new.stages):
        raise RescaleError("the two graphs have different stages")
    rescaled_states: dict[ProcessName, Value] = {}
    for stage in new.stages:
        rescaled_states.update(_redistribute(before[stage.name], stage, states))
    in_transit = _in_transit(given, old, new)
    newest = max(given, key=lambda point: point.id)
    return tuple(_point(newest, pipeline, rescaled_states, in_transit) for pipeline in new.pipelines())


def _redistribute(old: Stage, new: Stage, states: Mapping[ProcessName, Value]) -> dict[ProcessName, Value]:
    mine = [states[name] for name in vertices_of(old)]
    names = vertices_of(new)
    match new.sharing:
        case Sharing.WHOLE:
            if old.parallelism != new.parallelism:
                raise RescaleError(f"stage {new.name}: its state is WHOLE, so it keeps its parallelism of {old.parallelism}")
            return dict(zip(names, mine, strict=True))
        case Sharing.KEYED:
            return dict(zip(names, _by_key(new, mine), strict=True))
        case Sharing.SPLIT:
            return dict(zip(names, _by_item(new, mine), strict=True))


def _by_key(stage: Stage, states: Sequence[Value]) -> list[Value]:
    shares: list[dict[str, Value]] = [{} for _ in range(stage.parallelism)]
    for state in states:
        if not isinstance(state, dict):
            raise RescaleError(f"stage {stage.name}: its state is KEYED, so each must be a mapping")
        for key, value in state.items():
            share = shares[owner_of(key, stage.parallelism)]
            if key in share:
                raise RescaleError(f"stage {stage.name}: two vertices hold the key {key!r}")
            share[key] = value
    return list(shares)


def _by_item(stage: Stage, states: Sequence[Value]) -> list[Value]:
    items: list[Value] = []
    for state in states:
        if not isinstance(state, list):
            raise RescaleError(f"stage {stage.name}: its state is SPLIT, so each must be a list")
        items += state
    return [items[index :: stage.parallelism] for index in range(stage.parallelism)]


def _in_transit(points: Sequence[CompletedPoint], old: DataflowGraph, new: DataflowGraph) -> dict[Channel, tuple[Record, ...]]:
    parallelism = {stage.name: stage.parallelism for stage in new.stages}
    found: dict[Channel, tuple[Record, ...]] = {}
    for point in points:
        for one, records in sorted(point.snapshot.channels.items()):
            for record in records:
                on = _channel_for(record, one, old, parallelism)
                found[on] = (*found.get(on, ()), record)
    return found


def _channel_for(record: Record, one: Channel, old: DataflowGraph, parallelism: Mapping[StageName, int]) -> Channel:
    source, target = old.stage_of[one.source], old.stage_of[one.target]
    routing = next(edge.routing for edge in old.edges if (edge.source, edge.target) == (source, target))
    from_ = index_of(one.source) % parallelism[source]
    match routing:
        case Routing.KEYED:
            assert record.key is not None, "a record on a KEYED edge has a key"
            to = owner_of(record.key, parallelism[target])
        case Routing.FORWARD:
            to = from_
        case Routing.REBALANCE:
            to = index_of(one.target) % parallelism[target]
        case Routing.BROADCAST:
            if parallelism[target] != sum(1 for stage in old.stage_of.values() if stage == target):
                raise RescaleError(f"{one}: a broadcast was in transit; use a point without one")
            to = index_of(one.target)
    return Channel(source=_vertex(source, from_), target=_vertex(target, to))


def _vertex(stage: StageName, index: int) -> ProcessName:
    return ProcessName(f"{stage}-{index + 1}")


def _point(
    newest: CompletedPoint,
    pipeline: Sequence[ProcessName],
    states: Mapping[ProcessName, Value],
    in_transit: Mapping[Channel, tuple[Record, ...]],
) -> CompletedPoint:
    snapshot: State = type(newest.snapshot)(
        snapshot=newest.id,
        states={name: states[name] for name in pipeline},
        channels={one: records for one, records in in_transit.items() if one.source in pipeline},
    )
    return CompletedPoint(
        id=newest.id,
        kind=newest.kind,
        name=newest.name,
        triggered=newest.triggered,
        completed=newest.completed,
        snapshot=snapshot,
    )
