"""The barrier rules, one event at a time, and that one process's part is pure."""

from __future__ import annotations

import pytest

from detector.checkpoints.protocol.barriers import BarrierRecorder
from stilltrue.fifo import (
    Abandoned,
    AbandonReason,
    ChannelRecord,
    Cut,
    Effect,
    Finished,
    Hold,
    LocalRecord,
    MarkerError,
    Release,
    SendMarker,
    channel,
)
from stilltrue.model import ProcessName, SnapshotId

S, T, LOOP, OUT = channel("s", "v"), channel("t", "v"), channel("w", "v"), channel("v", "w")
V = ProcessName("v")
ONE, TWO, THREE = SnapshotId(1), SnapshotId(2), SnapshotId(3)
Vertex = BarrierRecorder[str, str]


def acyclic() -> Vertex:
    return BarrierRecorder(V, incoming=[T, S], outgoing=[OUT])


def cyclic(messages_max: int = 10) -> Vertex:
    return BarrierRecorder(V, incoming=[S, LOOP], outgoing=[OUT], back=[LOOP], messages_max=messages_max)


def state() -> str:
    return "s"


def record_of(effects: tuple[Effect[str, str], ...]) -> LocalRecord[str, str]:
    (found,) = [effect.record for effect in effects if isinstance(effect, Finished)]
    return found


def test_only_a_source_begins_a_point_when_told_to() -> None:
    source = Vertex(ProcessName("s"), incoming=[], outgoing=[S])
    effects = source.begins(ONE, state)
    assert effects[:2] == (Cut(snapshot=ONE, state="s"), SendMarker(channel=S, snapshot=ONE))
    assert record_of(effects).incoming == ()
    assert source.begins(ONE, state) == ()
    with pytest.raises(MarkerError, match="v has inputs and cannot begin snapshot 1"):
        acyclic().begins(ONE, state)


def test_alignment_holds_an_early_input_until_the_barrier_is_forwarded() -> None:
    v = acyclic()
    v.received(S, "before")
    assert v.marked(S, ONE, state) == (Hold(channel=S),)
    assert v.held == (S,)
    assert v.received(T, "goes on") == ()
    effects = v.marked(T, ONE, state)
    assert effects[0] == Cut(snapshot=ONE, state="s")
    assert effects[1] == SendMarker(channel=OUT, snapshot=ONE)
    assert effects[-1] == Release(channels=(S,))
    assert record_of(effects).incoming == (
        ChannelRecord(channel=S, received=1, messages=()),
        ChannelRecord(channel=T, received=1, messages=()),
    )
    assert not v.held


def test_a_message_from_a_held_input_is_the_hosts_error() -> None:
    v = acyclic()
    v.marked(S, ONE, state)
    with pytest.raises(MarkerError, match="v received from s -> v while it was held"):
        v.received(S, "m")


def test_a_back_edge_is_not_waited_for_and_its_records_until_the_barrier_are_logged() -> None:
    v = cyclic()
    v.received(LOOP, "before")
    effects = v.marked(S, ONE, state)
    assert effects == (Cut(snapshot=ONE, state="s"), SendMarker(channel=OUT, snapshot=ONE))
    v.received(LOOP, "a")
    v.received(S, "not kept")
    v.received(LOOP, "b")
    record = record_of(v.marked(LOOP, ONE, state))
    assert record.incoming == (
        ChannelRecord(channel=S, received=0, messages=()),
        ChannelRecord(channel=LOOP, received=1, messages=("a", "b")),
    )
    assert v.under_way == ()


def test_a_back_edge_with_an_early_barrier_is_held_until_the_cut_with_an_empty_log() -> None:
    v = cyclic()
    v.received(LOOP, "before")
    assert v.marked(LOOP, ONE, state) == (Hold(channel=LOOP),)
    assert v.held == (LOOP,)
    with pytest.raises(MarkerError, match="received from w -> v while it was held"):
        v.received(LOOP, "sent after its source's cut")
    v.received(S, "goes on")
    effects = v.marked(S, ONE, state)
    assert effects[-1] == Release(channels=(LOOP,))
    assert record_of(effects).incoming == (
        ChannelRecord(channel=S, received=1, messages=()),
        ChannelRecord(channel=LOOP, received=1, messages=()),
    )
    assert not v.held


def test_barriers_of_an_already_aborted_point_are_dropped() -> None:
    v = cyclic()
    assert v.marked(LOOP, TWO, state) == (Hold(channel=LOOP),)
    assert v.gives_up(TWO) == (Release(channels=(LOOP,)),)
    assert v.marked(S, TWO, state) == ()
    assert v.under_way == ()
    v.marked(S, THREE, state)
    assert record_of(v.marked(LOOP, THREE, state)).snapshot == THREE
    source = Vertex(ProcessName("s"), incoming=[], outgoing=[S])
    source.gives_up(ONE)
    assert source.begins(ONE, state) == ()


def test_two_points_may_log_the_same_loop_at_once() -> None:
    v = cyclic()
    v.marked(S, ONE, state)
    v.received(LOOP, "a")
    v.marked(S, TWO, state)
    v.received(LOOP, "b")
    one = record_of(v.marked(LOOP, ONE, state))
    v.received(LOOP, "c")
    two = record_of(v.marked(LOOP, TWO, state))
    assert one.incoming[1].messages == ("a", "b")
    assert two.incoming[1] == ChannelRecord(channel=LOOP, received=1, messages=("b", "c"))


def test_a_newer_barrier_ends_a_stuck_alignment() -> None:
    v = acyclic()
    v.marked(S, ONE, state)
    assert v.marked(T, TWO, state) == (
        Abandoned(snapshot=ONE, reason=AbandonReason.OVERTAKEN),
        Release(channels=(S,)),
        Hold(channel=T),
    )
    assert v.marked(S, ONE, state) == (), "a late barrier of the abandoned one is swallowed"
    assert record_of(v.marked(S, TWO, state)).snapshot == TWO
    assert v.marked(S, ONE, state) == ()


def test_aborting_a_point_releases_held_inputs_and_drops_its_log() -> None:
    v = acyclic()
    v.marked(S, ONE, state)
    assert v.gives_up(ONE) == (Abandoned(snapshot=ONE, reason=AbandonReason.GIVEN_UP), Release(channels=(S,)))
    assert v.gives_up(ONE) == ()
    loop = cyclic()
    loop.marked(S, TWO, state)
    assert loop.gives_up(TWO) == (Abandoned(snapshot=TWO, reason=AbandonReason.GIVEN_UP),)
    assert loop.marked(LOOP, TWO, state) == ()
    assert loop.under_way == ()


def test_an_ended_input_counts_as_aligned() -> None:
    v = acyclic()
    v.marked(S, ONE, state)
    effects = v.ended(T)
    assert effects[-1] == Release(channels=(S,))
    assert record_of(effects).snapshot == ONE
    assert v.ended(S) == ()
    assert record_of(v.begins(TWO, state)).incoming == ()


def test_an_ended_back_edge_closes_its_logs() -> None:
    v = cyclic()
    v.marked(S, ONE, state)
    v.received(LOOP, "a")
    assert record_of(v.ended(LOOP)).incoming[1].messages == ("a",)


def test_a_full_log_aborts_the_point_and_never_drops_a_record() -> None:
    v = cyclic(messages_max=1)
    v.marked(S, ONE, state)
    assert v.received(LOOP, "a") == ()
    assert v.received(LOOP, "b") == (Abandoned(snapshot=ONE, reason=AbandonReason.TOO_MANY_MESSAGES),)
    assert v.marked(LOOP, ONE, state) == ()
    v.marked(S, THREE, state)
    assert record_of(v.marked(LOOP, THREE, state)).incoming[1] == ChannelRecord(channel=LOOP, received=2, messages=())


def test_impossible_barriers_are_the_peers_fault() -> None:
    early = cyclic()
    early.marked(LOOP, ONE, state)
    with pytest.raises(MarkerError, match="second barrier on w -> v while it was held"):
        early.marked(LOOP, ONE, state)
    v = cyclic()
    v.marked(S, ONE, state)
    v.marked(LOOP, ONE, state)
    with pytest.raises(MarkerError, match="second barrier of snapshot 1 on w -> v"):
        v.marked(LOOP, ONE, state)
    two = acyclic()
    two.marked(S, ONE, state)
    with pytest.raises(MarkerError, match="second barrier of snapshot 1 on s -> v"):
        two.marked(S, ONE, state)
    with pytest.raises(MarkerError, match="v has no incoming channel v -> w"):
        two.received(OUT, "m")
    with pytest.raises(MarkerError, match="v has no outgoing channel s -> v"):
        two.sent(S)
