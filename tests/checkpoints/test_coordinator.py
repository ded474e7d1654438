"""The coordinator's rules: triggers, plan, completion, aborts, the end of the sources, failure."""

from __future__ import annotations

import pytest

from detector.checkpoints.graph.graph import DataflowGraph, Edge, Stage, StageName
from detector.checkpoints.protocol.coordinator import Coordinator, Effects, Schedule
from detector.checkpoints.protocol.points import (
    Acknowledgement,
    Begin,
    Completed,
    CompletedPoint,
    Drop,
    FailReason,
    GivenUp,
    Local,
    Over,
    PointKind,
    Record,
    Refusal,
    StopVertex,
)
from stilltrue.fifo import Channel, ChannelRecord, channel
from stilltrue.model import ProcessName, SnapshotId

SRC, OUT = ProcessName("src-1"), ProcessName("out-1")
LINE = DataflowGraph.of(
    [Stage(name=StageName("src")), Stage(name=StageName("out"))],
    [Edge(source=StageName("src"), target=StageName("out"))],
)
LOOP = DataflowGraph.of(
    [Stage(name=StageName("src")), Stage(name=StageName("out"))],
    [
        Edge(source=StageName("src"), target=StageName("out")),
        Edge(source=StageName("out"), target=StageName("out")),
    ],
)
ONE, TWO, THREE = SnapshotId(1), SnapshotId(2), SnapshotId(3)


def coordinator(
    graph: DataflowGraph = LINE, *, pending_max: int = 1, interval_seconds: float | None = 10.0, kept_max: int = 1
) -> Coordinator:
    schedule = Schedule(interval_seconds=interval_seconds, pending_max=pending_max, timeout_seconds=25.0, kept_max=kept_max)
    return Coordinator(graph, graph.topology.processes, schedule, now=0.0)


def record(
    vertex: ProcessName,
    point: SnapshotId,
    *,
    graph: DataflowGraph = LINE,
    sent: int = 0,
    received: int = 0,
    loop: tuple[Record, ...] = (),
) -> Local:
    messages: dict[Channel, tuple[Record, ...]] = {channel("out-1", "out-1"): loop}
    return Local(
        snapshot=point,
        process=vertex,
        state=f"{vertex} at {point}",
        sent=tuple((one, sent + len(messages.get(one, ()))) for one in graph.topology.outgoing(vertex)),
        incoming=tuple(
            ChannelRecord(channel=one, received=received, messages=messages.get(one, ()))
            for one in graph.topology.incoming(vertex)
        ),
    )


def completed(effects: Effects) -> list[CompletedPoint]:
    return [effect.point for effect in effects if isinstance(effect, Completed)]


def complete(one: Coordinator, point: SnapshotId, now: float = 1.0, graph: DataflowGraph = LINE) -> Effects:
    one.acknowledged(record(SRC, point, graph=graph), now)
    return one.acknowledged(record(OUT, point, graph=graph), now)[1]


def test_a_periodic_point_is_due_every_interval_and_begun_by_the_sources() -> None:
    one = coordinator()
    assert one.ticks(9.9) == ()
    assert one.ticks(10.0) == (Begin(vertex=SRC, point=ONE),)
    assert one.pending == (ONE,)
    complete(one, ONE)
    assert one.ticks(19.9) == ()
    assert one.ticks(20.0) == (Begin(vertex=SRC, point=TWO),)


def test_at_most_pending_max_points_are_in_progress_besides_savepoints() -> None:
    one = coordinator(pending_max=2)
    assert one.ticks(10.0)
    assert one.ticks(20.0)
    assert one.ticks(30.0) == ()
    assert one.savepoint("s", 31.0) == (Begin(vertex=SRC, point=THREE),)
    assert one.pending == (ONE, TWO, THREE)


def test_the_last_acknowledgement_completes_the_point() -> None:
    one = coordinator()
    one.ticks(10.0)
    assert one.acknowledged(record(SRC, ONE), 11.0) == (Acknowledgement.ACCEPTED, ())
    assert one.acknowledged(record(SRC, ONE), 11.0) == (Acknowledgement.DUPLICATE, ())
    worth, effects = one.acknowledged(record(OUT, ONE), 12.0)
    (point,) = completed(effects)
    assert worth is Acknowledgement.COMPLETED
    assert (point.id, point.kind, point.triggered, point.completed) == (ONE, PointKind.PERIODIC, 10.0, 12.0)
    assert dict(point.states) == {SRC: "src-1 at 1", OUT: "out-1 at 1"}
    assert one.latest == point


def test_a_late_acknowledgement_differs_from_an_unknown_one() -> None:
    one = coordinator()
    one.ticks(10.0)
    complete(one, ONE)
    assert one.acknowledged(record(SRC, ONE), 11.0)[0] is Acknowledgement.LATE
    assert one.acknowledged(record(SRC, SnapshotId(9)), 11.0)[0] is Acknowledgement.UNKNOWN
    stranger = Local(snapshot=ONE, process=ProcessName("x"), state=None, sent=(), incoming=())
    assert one.acknowledged(stranger, 11.0)[0] is Acknowledgement.UNKNOWN
    one.ticks(20.0)
    stranger = Local(snapshot=TWO, process=ProcessName("x"), state=None, sent=(), incoming=())
    assert one.acknowledged(stranger, 21.0) == (Acknowledgement.UNKNOWN, ())


def test_a_point_times_out_and_its_acknowledgements_are_late() -> None:
    one = coordinator(interval_seconds=100.0)
    one.ticks(100.0)
    assert one.ticks(124.9) == ()
    assert one.ticks(125.0) == (GivenUp(point=ONE, reason=FailReason.TIMED_OUT),)
    assert one.acknowledged(record(SRC, ONE), 126.0)[0] is Acknowledgement.LATE
    assert one.latest is None


def test_a_newer_completed_point_subsumes_older_pending_ones_but_no_savepoint() -> None:
    one = coordinator(pending_max=3)
    one.ticks(10.0)
    one.savepoint("s", 11.0)
    one.ticks(20.0)
    effects = complete(one, THREE)
    assert GivenUp(point=ONE, reason=FailReason.SUBSUMED) in effects
    assert one.pending == (TWO,)
    (late,) = completed(complete(one, TWO))
    assert (late.kind, late.name) == (PointKind.SAVEPOINT, "s")
    assert one.latest is not None
    assert one.latest.id == THREE, "an older savepoint that completes later is not where a restart goes back to"


def test_only_the_newest_periodic_points_are_kept_and_savepoints_for_ever() -> None:
    one = coordinator()
    one.savepoint("s", 1.0)
    complete(one, ONE)
    one.ticks(10.0)
    assert not [e for e in complete(one, TWO) if isinstance(e, Drop)]
    one.ticks(20.0)
    assert [e.point for e in complete(one, THREE) if isinstance(e, Drop)] == [TWO]


def test_savepoints_are_refused_with_a_reason() -> None:
    one = coordinator()
    one.savepoint("s", 1.0)
    assert one.savepoint("s", 1.0) is Refusal.NAME_TAKEN
    assert one.failed() == (GivenUp(point=ONE, reason=FailReason.VERTEX_FAILED),)
    assert one.savepoint("t", 2.0) is Refusal.RECOVERING
    assert one.ticks(50.0) == ()
    one.restarted(50.0)
    assert one.savepoint("s", 51.0) == (Begin(vertex=SRC, point=TWO),), "a name is free again when its point is given up"
    with pytest.raises(ValueError, match="needs a name"):
        one.savepoint("", 52.0)


def test_a_vertex_that_declines_aborts_the_point() -> None:
    one = coordinator()
    one.ticks(10.0)
    assert one.declined(OUT, ONE) == (GivenUp(point=ONE, reason=FailReason.DECLINED),)
    assert one.declined(OUT, ONE) == ()


def test_records_that_contradict_each_other_never_complete_a_point() -> None:
    one = coordinator()
    one.ticks(10.0)
    one.acknowledged(record(SRC, ONE, sent=3), 11.0)
    _, effects = one.acknowledged(record(OUT, ONE, received=2), 11.0)
    assert effects == (GivenUp(point=ONE, reason=FailReason.INCONSISTENT),)
    assert one.latest is None


def test_a_final_point_ends_the_pipeline_once_all_bounded_sources_are_done() -> None:
    one = coordinator(interval_seconds=None)
    assert one.exhausted(SRC, 1.0) == (Begin(vertex=SRC, point=ONE),)
    assert one.ticks(2.0) == (), "one final point at a time"
    effects = complete(one, ONE)
    assert [type(effect) for effect in effects] == [Completed, Over]
    assert completed(effects)[0].kind is PointKind.FINAL
    assert one.over
    assert one.savepoint("s", 3.0) is Refusal.OVER
    assert one.ticks(99.0) == ()


def test_a_point_triggered_before_the_source_was_done_is_not_the_end() -> None:
    one = coordinator(pending_max=2)
    one.ticks(10.0)
    assert one.exhausted(SRC, 11.0) == (Begin(vertex=SRC, point=TWO),)
    assert not [effect for effect in complete(one, ONE) if isinstance(effect, Over)]
    assert [effect for effect in complete(one, TWO) if isinstance(effect, Over)]


def test_a_loop_with_records_in_transit_is_not_the_end() -> None:
    one = coordinator(LOOP, interval_seconds=None)
    one.exhausted(SRC, 1.0)
    one.acknowledged(record(SRC, ONE, graph=LOOP), 2.0)
    _, effects = one.acknowledged(record(OUT, ONE, graph=LOOP, loop=(Record(value=1),)), 2.0)
    assert not completed(effects)[0].drained
    assert effects[-1] == Begin(vertex=SRC, point=TWO), "so another final point is taken at once"
    assert [effect for effect in complete(one, TWO, graph=LOOP) if isinstance(effect, Over)]


TWO_SOURCES = DataflowGraph.of(
    [Stage(name=StageName("a")), Stage(name=StageName("b")), Stage(name=StageName("out"))],
    [Edge(source=StageName("a"), target=StageName("out")), Edge(source=StageName("b"), target=StageName("out"))],
)


def test_a_source_that_is_done_may_end_when_a_later_point_is_completed_and_stays_in_the_points() -> None:
    a, b = ProcessName("a-1"), ProcessName("b-1")
    one = coordinator(TWO_SOURCES)
    assert one.exhausted(a, 1.0) == ()
    assert one.ticks(10.0) == (Begin(vertex=a, point=ONE), Begin(vertex=b, point=ONE))
    for vertex in (a, b):
        one.acknowledged(record(vertex, ONE, graph=TWO_SOURCES), 11.0)
    _, effects = one.acknowledged(record(OUT, ONE, graph=TWO_SOURCES), 11.0)
    assert effects[-1] == StopVertex(vertex=a)
    one.finished(a)
    assert one.exhausted(b, 12.0) == (Begin(vertex=b, point=TWO),), "the plan has no a any more"
    one.acknowledged(record(b, TWO, graph=TWO_SOURCES), 13.0)
    _, effects = one.acknowledged(record(OUT, TWO, graph=TWO_SOURCES), 13.0)
    (last,) = completed(effects)
    assert (last.states[a], last.states[b], last.finished) == ("a-1 at 1", "b-1 at 2", (a,))
    assert isinstance(effects[-1], Over)


def test_after_a_restart_vertices_that_had_finished_take_part_again() -> None:
    a, b = ProcessName("a-1"), ProcessName("b-1")
    one = coordinator(TWO_SOURCES)
    one.exhausted(a, 1.0)
    one.ticks(10.0)
    for vertex in (a, b, OUT):
        one.acknowledged(record(vertex, ONE, graph=TWO_SOURCES), 11.0)
    one.finished(a)
    one.failed()
    one.restarted(20.0)
    assert one.ticks(30.0) == (Begin(vertex=a, point=TWO), Begin(vertex=b, point=TWO))
    assert one.acknowledged(record(a, TWO, graph=TWO_SOURCES), 31.0)[0] is Acknowledgement.ACCEPTED


def test_a_vertex_that_ends_before_it_acknowledges_aborts_the_point() -> None:
    one = coordinator(pending_max=2)
    one.ticks(10.0)
    complete(one, ONE)
    one.ticks(20.0)
    assert one.finished(OUT) == (GivenUp(point=TWO, reason=FailReason.VERTEX_FINISHED),)


@pytest.mark.parametrize("wrong", [{"interval_seconds": 0.0}, {"pending_max": 0}, {"timeout_seconds": 0.0}, {"kept_max": 0}])
def test_a_schedule_outside_its_bounds_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="greater than 0"):
        Schedule(**wrong)  # type: ignore[arg-type]
