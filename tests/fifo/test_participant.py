"""A live process's rules without a network: numbers, order on the wire, abandoning once, loss; and the wire's checks."""

from __future__ import annotations

from collections import deque

import pytest

from stilltrue.fifo import ChannelError, LocalRecord, MarkerError, Topology, channel
from stilltrue.fifo.model import ChannelRecord
from stilltrue.fifo.participant import Action, Deliver, LiveSnapshot, Participant, SendFrame, SnapshotDone, SnapshotFailed
from stilltrue.fifo.wire import (
    Frame,
    FrameError,
    GivenUp,
    Goodbye,
    Hello,
    MarkerFrame,
    Payload,
    RecordFrame,
    decode,
    digest_of,
    encode,
)
from stilltrue.model import ProcessName, SnapshotId
from stilltrue.v1 import channels_pb2 as pb

P, Q, R = (ProcessName(name) for name in "pqr")
PQ, QP = channel("p", "q"), channel("q", "p")
MESH = Topology.of([P, Q, R], [channel(a, b) for a in "pqr" for b in "pqr" if a != b])


class Net:
    """Three participants and the queues between them; every frame is encoded and decoded."""

    def __init__(self) -> None:
        self.who = {name: Participant(name, MESH, state=name.encode) for name in MESH.processes}
        self.queues: dict[tuple[ProcessName, ProcessName], deque[Frame]] = {}
        self.done: dict[ProcessName, list[LiveSnapshot]] = {name: [] for name in MESH.processes}
        self.failed: dict[ProcessName, list[SnapshotFailed]] = {name: [] for name in MESH.processes}
        self.delivered: list[Deliver] = []

    def do(self, name: ProcessName, actions: tuple[Action, ...]) -> None:
        for one in actions:
            match one:
                case SendFrame(target=target, frame=frame):
                    again = decode(pb.ChannelFrame.FromString(encode(frame).SerializeToString()))
                    assert again == frame
                    self.queues.setdefault((name, target), deque()).append(again)
                case SnapshotDone(snapshot=snapshot):
                    self.done[name].append(snapshot)
                case SnapshotFailed():
                    self.failed[name].append(one)
                case Deliver():
                    self.delivered.append(one)

    def begin(self, name: ProcessName) -> SnapshotId:
        snapshot, asked = self.who[name].begins()
        self.do(name, asked)
        return snapshot

    def run(self) -> int:
        carried = 0
        while any(self.queues.values()):
            for (source, target), queue in list(self.queues.items()):
                if queue:
                    self.do(target, self.who[target].receives(source, queue.popleft()))
                    carried += 1
        return carried


def test_any_process_numbers_its_snapshots_without_coordination() -> None:
    net = Net()
    assert [net.begin(R), net.begin(P), net.begin(Q), net.begin(P)] == [3, 1, 2, 4]
    net.run()
    assert net.begin(P) == 7, "above 1 to 4, which it has seen; 5 and 6 belong to q and r"
    for name in MESH.processes:
        assert sorted(snapshot.snapshot for snapshot in net.done[name]) == [1, 2, 3, 4]


def test_messages_in_transit_come_with_the_snapshot_in_their_order() -> None:
    net = Net()
    net.do(P, (net.who[P].sends(PQ, b"one"), net.who[P].sends(PQ, b"two")))
    net.begin(Q)
    net.run()
    snapshot = net.done[P][0]
    assert snapshot.channels[PQ] == (b"one", b"two")
    assert snapshot.states == {P: b"p", Q: b"q", R: b"r"}
    assert [one.payload for one in net.delivered] == [b"one", b"two"]


def test_an_abort_reaches_every_process_once_and_the_next_snapshot_completes() -> None:
    net = Net()
    snapshot = net.begin(P)
    net.do(P, net.who[P].gives_up(snapshot, "too slow"))
    net.do(P, net.who[P].gives_up(snapshot, "again"))
    net.run()
    assert [[one.reason for one in net.failed[name]] for name in MESH.processes] == [["too slow"]] * 3
    assert all(not done for done in net.done.values())
    net.begin(Q)
    net.run()
    assert all(len(done) == 1 for done in net.done.values())


def test_a_lost_process_aborts_snapshots_in_progress_and_prevents_new_ones() -> None:
    net = Net()
    net.begin(P)
    net.do(P, net.who[P].loses(R))
    assert [one.reason for one in net.failed[P]] == ["r was lost"]
    assert net.who[P].loses(R) == ()
    with pytest.raises(ChannelError, match="r is lost"):
        net.who[P].begins()
    with pytest.raises(ChannelError, match="p -> r is lost"):
        net.who[P].sends(channel("p", "r"), b"")


def test_records_that_contradict_each_other_end_their_snapshot_and_nothing_else() -> None:
    net = Net()
    net.begin(P)
    net.who[Q]._recorder.sent(QP)  # as if a message had been lost in transit
    net.run()
    for name in MESH.processes:
        assert "1 messages were sent on q -> p, 0 received and 0 in transit" in net.failed[name][0].reason
        assert net.done[name] == []
        assert net.who[name].lost == ()


def test_snapshots_in_progress_are_bounded() -> None:
    one = Participant(P, MESH, state=bytes, snapshots_max=2)
    one.begins()
    one.begins()
    with pytest.raises(ChannelError, match="2 snapshots are already in progress"):
        one.begins()


def test_a_protocol_violation_is_the_peers_fault() -> None:
    one = Participant(Q, MESH, state=bytes)
    one.receives(P, Payload(name="", number=1, payload=b""))
    with pytest.raises(ChannelError, match="p -> q is not FIFO: message 3 arrived where 2 was due"):
        one.receives(P, Payload(name="", number=3, payload=b""))
    with pytest.raises(MarkerError, match="q has no incoming channel p -> q #other"):
        one.receives(P, MarkerFrame(name="other", snapshot=SnapshotId(1)))
    with pytest.raises(ChannelError, match="a hello or goodbye out of place"):
        one.receives(P, Goodbye())


def test_every_frame_survives_the_wire() -> None:
    contents = ChannelRecord(channel=channel("q", "p", "side"), received=2, messages=(b"a", b""))
    record = LocalRecord(snapshot=SnapshotId(5), process=P, state=b"\x00", incoming=(contents,), sent=((PQ, 3),))
    frames: list[Frame] = [
        Hello(process=P, digest=digest_of(MESH)),
        Payload(name="side", number=2, payload=b"\xff"),
        MarkerFrame(name="", snapshot=SnapshotId(9)),
        RecordFrame(record=record),
        GivenUp(snapshot=SnapshotId(3), reason="why"),
        Goodbye(),
    ]
    for frame in frames:
        assert decode(pb.ChannelFrame.FromString(encode(frame).SerializeToString())) == frame


TWICE = pb.ChannelCount(channel=pb.ChannelName(source="p", target="q"), sent=1)


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (pb.ChannelFrame(), "frame: empty"),
        (pb.ChannelFrame(hello=pb.ChannelHello()), "hello.process"),
        (pb.ChannelFrame(message=pb.ChannelMessage()), "message.number"),
        (pb.ChannelFrame(marker=pb.ChannelMarker()), "marker.snapshot"),
        (pb.ChannelFrame(record=pb.ChannelLocalRecord(process="p")), "record.snapshot"),
        (pb.ChannelFrame(record=pb.ChannelLocalRecord(snapshot=1)), "record.process"),
        (pb.ChannelFrame(record=pb.ChannelLocalRecord(snapshot=1, process="p", sent=[TWICE, TWICE])), "duplicate"),
        (pb.ChannelFrame(given_up=pb.ChannelGivenUp()), "given_up.snapshot"),
    ],
)
def test_a_frame_that_breaks_the_contract_is_refused_by_field(message: pb.ChannelFrame, field: str) -> None:
    with pytest.raises(FrameError, match=field):
        decode(message)
