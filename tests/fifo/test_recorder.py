"""The marker rules, one event at a time: the effects that the recorder returns, and its records."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import stilltrue.fifo.recorder as recorder_module
from stilltrue.fifo import (
    Abandoned,
    AbandonReason,
    ChannelRecord,
    Cut,
    Finished,
    LocalRecord,
    MarkerError,
    MarkerRecorder,
    SendMarker,
    channel,
)
from stilltrue.fifo.model import Effect
from stilltrue.model import ProcessName, SnapshotId

PQ, QP, RQ, QR = channel("p", "q"), channel("q", "p"), channel("r", "q"), channel("q", "r")
ONE, TWO = SnapshotId(1), SnapshotId(2)
Q = ProcessName("q")


def of_q(messages_max: int = 100) -> MarkerRecorder[str, str]:
    return MarkerRecorder(Q, incoming=[RQ, PQ], outgoing=[QR, QP], messages_max=messages_max)


def state(text: str = "s") -> str:
    return text


def finished(effects: tuple[Effect[str, str], ...]) -> LocalRecord[str, str]:
    (effect,) = effects
    assert isinstance(effect, Finished)
    return effect.record


def test_the_first_marker_cuts_and_sends_one_marker_on_every_outgoing_channel() -> None:
    q = of_q()
    assert q.marked(PQ, ONE, state) == (
        Cut(snapshot=ONE, state="s"),
        SendMarker(channel=QP, snapshot=ONE),
        SendMarker(channel=QR, snapshot=ONE),
    )
    assert q.under_way == (ONE,)


def test_the_first_markers_channel_is_empty_and_others_record_until_their_marker() -> None:
    q = of_q()
    q.sent(QP)
    q.received(RQ, "before the cut")
    q.marked(PQ, ONE, state)
    q.received(PQ, "after the marker")
    q.received(RQ, "a")
    q.received(RQ, "b")
    record = finished(q.marked(RQ, ONE, state))
    assert record.incoming == (
        ChannelRecord(channel=PQ, received=0, messages=()),
        ChannelRecord(channel=RQ, received=1, messages=("a", "b")),
    )
    assert record.sent == ((QP, 1), (QR, 0))
    assert q.under_way == ()


def test_the_state_is_taken_once_at_the_cut() -> None:
    q, asked = of_q(), []

    def counted() -> str:
        asked.append(1)
        return f"asked {len(asked)} times"

    q.begins(ONE, counted)
    q.begins(ONE, counted)
    q.marked(PQ, ONE, counted)
    assert finished(q.marked(RQ, ONE, counted)).state == "asked 1 times"


def test_concurrent_snapshots_each_record_a_message_where_it_was_in_transit() -> None:
    q = of_q()
    q.begins(ONE, state)
    q.received(PQ, "first")
    q.begins(TWO, state)
    q.received(PQ, "second")
    q.marked(PQ, ONE, state)
    q.received(PQ, "third")
    q.marked(PQ, TWO, state)
    one, two = finished(q.marked(RQ, ONE, state)), finished(q.marked(RQ, TWO, state))
    assert one.incoming[0] == ChannelRecord(channel=PQ, received=0, messages=("first", "second"))
    assert two.incoming[0] == ChannelRecord(channel=PQ, received=1, messages=("second", "third"))


def test_a_process_without_incoming_channels_finishes_when_it_begins() -> None:
    source = MarkerRecorder[str, str](ProcessName("p"), incoming=[], outgoing=[PQ])
    effects = source.begins(ONE, state)
    assert effects[:2] == (Cut(snapshot=ONE, state="s"), SendMarker(channel=PQ, snapshot=ONE))
    assert finished(effects[2:]).incoming == ()


def test_a_second_marker_on_one_channel_is_the_peers_fault() -> None:
    q = of_q()
    q.marked(PQ, ONE, state)
    with pytest.raises(MarkerError, match="second marker of snapshot 1 on p -> q"):
        q.marked(PQ, ONE, state)


def test_an_unknown_channel_is_refused() -> None:
    q, stranger = of_q(), channel("x", "y")
    with pytest.raises(MarkerError, match="q has no outgoing channel x -> y"):
        q.sent(stranger)
    with pytest.raises(MarkerError, match="q has no incoming channel x -> y"):
        q.received(stranger, "m")
    with pytest.raises(MarkerError, match="q has no incoming channel x -> y"):
        q.marked(stranger, ONE, state)
    with pytest.raises(MarkerError, match="q has no incoming channel x -> y"):
        q.ended(stranger)
    assert q.under_way == ()


def test_a_channel_that_ends_needs_no_marker() -> None:
    q = of_q()
    q.begins(ONE, state)
    q.received(PQ, "last")
    assert q.ended(PQ) == ()
    record = finished(q.marked(RQ, ONE, state))
    assert record.incoming[0].messages == ("last",)
    q.begins(TWO, state)
    assert [one.channel for one in finished(q.marked(RQ, TWO, state)).incoming] == [RQ]


def test_a_lost_channel_abandons_only_the_snapshots_that_wait_for_it() -> None:
    q = of_q()
    q.begins(ONE, state)
    q.begins(TWO, state)
    q.marked(PQ, ONE, state)
    assert q.lost(PQ) == (Abandoned(snapshot=TWO, reason=AbandonReason.CHANNEL_LOST),)
    assert finished(q.marked(RQ, ONE, state)).snapshot == ONE
    assert q.marked(RQ, TWO, state) == ()
    assert q.under_way == ()


def test_an_abandoned_snapshot_is_not_begun_again_by_its_late_markers() -> None:
    q = of_q()
    q.begins(ONE, state)
    assert q.gives_up(ONE) == (Abandoned(snapshot=ONE, reason=AbandonReason.GIVEN_UP),)
    assert q.gives_up(ONE) == ()
    assert q.received(PQ, "m") == ()
    assert q.marked(PQ, ONE, state) == ()
    assert q.marked(RQ, ONE, state) == ()
    assert q.under_way == ()


def test_the_bound_on_kept_messages_abandons_the_snapshot_never_the_message() -> None:
    q = of_q(messages_max=1)
    q.begins(ONE, state)
    assert q.received(PQ, "a") == ()
    assert q.received(PQ, "b") == (Abandoned(snapshot=ONE, reason=AbandonReason.TOO_MANY_MESSAGES),)
    assert q.received(PQ, "c") == ()
    q.marked(PQ, ONE, state)
    assert q.marked(RQ, ONE, state) == ()


def test_channels_must_belong_to_the_process() -> None:
    with pytest.raises(ValueError, match="q -> p is not an incoming channel of q"):
        MarkerRecorder[str, str](Q, incoming=[QP], outgoing=[])


def test_the_pure_modules_import_no_clock_thread_or_randomness() -> None:
    folder = Path(recorder_module.__file__).parent
    for name in ("recorder", "model", "assembler", "topology", "errors", "__init__"):
        tree = ast.parse((folder / f"{name}.py").read_text())
        imported = {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
        imported |= {alias.name for n in ast.walk(tree) if isinstance(n, ast.Import) for alias in n.names}
        allowed = {"__future__", "collections.abc", "dataclasses", "enum", "types", "typing", "stilltrue.model"}
        assert {one for one in imported if one and not one.startswith("stilltrue.fifo.")} <= allowed, name
        assert not {one for one in imported if one and one.endswith((".live", ".wire"))}, name
