"""Records become a snapshot only if the counts at both ends of every channel agree; flooding brings it to all processes."""

from __future__ import annotations

from collections import deque

import pytest

from stilltrue.fifo import (
    Channel,
    ChannelRecord,
    ChannelSnapshot,
    Completed,
    ConservationError,
    Flood,
    LocalRecord,
    PendingSnapshot,
    RecordError,
    SendRecord,
    Topology,
    channel,
)
from stilltrue.model import ProcessName, SnapshotId

P, Q = ProcessName("p"), ProcessName("q")
PQ, QP = channel("p", "q"), channel("q", "p")
TWO_WAY = Topology.of([P, Q], [PQ, QP])
ONE = SnapshotId(1)
Record = LocalRecord[str, str]


def of_p(*, sent: int = 2, received: int = 0, messages: tuple[str, ...] = (), state: str = "p0") -> Record:
    incoming = (ChannelRecord(channel=QP, received=received, messages=messages),)
    return LocalRecord(snapshot=ONE, process=P, state=state, sent=((PQ, sent),), incoming=incoming)


def of_q(*, sent: int = 0, received: int = 1, messages: tuple[str, ...] = ("m",)) -> Record:
    incoming = (ChannelRecord(channel=PQ, received=received, messages=messages),)
    return LocalRecord(snapshot=ONE, process=Q, state="q0", sent=((QP, sent),), incoming=incoming)


def test_the_last_record_completes_the_snapshot() -> None:
    pending = PendingSnapshot[str, str](ONE, TWO_WAY)
    assert pending.adds(of_p()) is None
    assert pending.missing == (Q,)
    assert pending.adds(of_q()) == ChannelSnapshot(snapshot=ONE, states={P: "p0", Q: "q0"}, channels={PQ: ("m",), QP: ()})


@pytest.mark.parametrize(
    "wrong",
    [of_q(received=0), of_q(received=2), of_q(messages=("m", "doubled"))],
    ids=["lost", "received more than sent", "doubled"],
)
def test_contradicting_counts_are_refused(wrong: Record) -> None:
    pending = PendingSnapshot[str, str](ONE, TWO_WAY)
    pending.adds(of_p())
    with pytest.raises(ConservationError, match="2 messages were sent on p -> q"):
        pending.adds(wrong)


def test_a_record_is_accepted_once_and_a_contradicting_one_refused() -> None:
    pending = PendingSnapshot[str, str](ONE, TWO_WAY)
    pending.adds(of_p())
    assert pending.adds(of_p()) is None
    with pytest.raises(RecordError, match="p sent two different records"):
        pending.adds(of_p(state="another"))


def test_strangers_and_other_snapshots_are_refused() -> None:
    pending = PendingSnapshot[str, str](SnapshotId(9), TWO_WAY)
    with pytest.raises(RecordError, match="record of snapshot 1 was offered to snapshot 9"):
        pending.adds(of_p())
    stranger = LocalRecord[str, str](snapshot=ONE, process=ProcessName("x"), state="", sent=(), incoming=())
    with pytest.raises(RecordError, match="x is not a member"):
        PendingSnapshot[str, str](ONE, TWO_WAY).adds(stranger)


def test_a_record_without_one_of_its_channels_is_refused() -> None:
    pending = PendingSnapshot[str, str](ONE, TWO_WAY)
    pending.adds(of_p())
    with pytest.raises(RecordError, match="one end of p -> q did not record it"):
        pending.adds(LocalRecord(snapshot=ONE, process=Q, state="", sent=((QP, 0),), incoming=()))


def test_flooding_brings_the_snapshot_to_every_process_and_leaves_no_state() -> None:
    names = [ProcessName(n) for n in "abcd"]
    ring = [Channel(source=names[i], target=names[(i + 1) % 4]) for i in range(4)]
    topology = Topology.of(names, [*ring, channel("a", "c")])
    floods = {name: Flood[str, str](name, topology) for name in names}
    queue: deque[SendRecord[str, str]] = deque()
    whole: dict[str, ChannelSnapshot[str, str]] = {}
    sent = 0

    def obey(who: str, effects: tuple[SendRecord[str, str] | Completed[str, str], ...]) -> None:
        nonlocal sent
        for effect in effects:
            if isinstance(effect, SendRecord):
                queue.append(effect)
                sent += 1
            else:
                assert who not in whole
                whole[who] = effect.snapshot

    for name in names:
        incoming = tuple(ChannelRecord[str](channel=c, received=0, messages=()) for c in topology.incoming(name))
        out = tuple((c, 0) for c in topology.outgoing(name))
        record = Record(snapshot=ONE, process=name, state=str(name), sent=out, incoming=incoming)
        obey(name, floods[name].finished(record))
    while queue:
        effect = queue.popleft()
        obey(effect.channel.target, floods[effect.channel.target].received(effect.record))
    assert sorted(whole) == names
    assert all(dict(one.states) == {n: n for n in names} for one in whole.values())
    assert sent == len(topology.channels) * len(names), "every record goes once along every channel"
    assert all(flood.pending == () for flood in floods.values())


def test_flooding_needs_a_strongly_connected_graph() -> None:
    with pytest.raises(ValueError, match="from every process to every other"):
        Flood[str, str](P, Topology.of([P, Q], [PQ]))


def test_processes_that_no_marker_reaches_are_found() -> None:
    names = [ProcessName(n) for n in "abc"]
    topology = Topology.of(names, [channel("a", "b"), channel("c", "b")])
    assert topology.unreached([names[0]]) == ("c",)
    assert topology.unreached([names[0], names[2]]) == ()
    assert not topology.strongly_connected()
    assert TWO_WAY.strongly_connected()


def test_an_invalid_topology_is_refused() -> None:
    with pytest.raises(ValueError, match="duplicate process name"):
        Topology.of([P, P], [])
    with pytest.raises(ValueError, match="duplicate channel"):
        Topology.of([P, Q], [PQ, PQ])
    with pytest.raises(ValueError, match="channel p -> x names x, which is not a process"):
        Topology.of([P], [channel("p", "x")])
