"""A packed document unpacks to the document, whatever parts were packed before."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detector.core.document.reader import write_document
from detector.core.snapshot import Snapshot
from detector.core.times import write_time
from detector.graph.columns import WaitColumns
from detector.service.storage import packed_documents
from detector.service.storage.packed_documents import PackedDocuments, unpacked
from stilltrue.model import Activity, Message, PartyName, ProcessName, ProcessState, SnapshotId, SnapshotRef, Wait, WaitNumber

NAMES = st.sampled_from(['a/"1"', "a/2", "b/\\x", "b/ü", "c/\x00"]).map(PartyName)
TIMES = st.none() | st.sampled_from([0.0, 1.5, 1_700_000_000.123456])


@st.composite
def waits(draw: st.DrawFn) -> Wait:
    among = tuple(draw(st.lists(NAMES, min_size=1, max_size=3)))
    number = draw(st.none() | st.integers(0, 2**53))
    return Wait(
        waiter=draw(NAMES), among=among, needs=draw(st.integers(1, len(set(among)))), deadline=draw(TIMES), since=draw(TIMES),
        number=None if number is None else WaitNumber(number), uncoloured=draw(st.booleans()),
        what=draw(st.sampled_from(["", "the reply", 'a "quoted" one'])),
    )  # fmt: skip


STATES: st.SearchStrategy[Mapping[ProcessName, ProcessState]] = st.dictionaries(
    st.sampled_from("abc").map(ProcessName),
    st.builds(ProcessState, activity=st.sampled_from(Activity), facts=st.just({"x": 1}), service=st.sampled_from(["", "shop"])),
)
MESSAGES = st.lists(st.builds(Message, source=st.just(ProcessName("a")), target=st.none(), what=st.just("reply"))).map(tuple)
SNAPSHOTS = st.builds(
    Snapshot,
    ref=st.builds(SnapshotRef, id=st.integers(1, 9).map(SnapshotId), begun=TIMES, scope=st.sampled_from(["all", "shop"])),
    processes=STATES,
    waits=st.lists(waits(), max_size=6).map(WaitColumns.of),
    in_transit=MESSAGES,
    missing=st.lists(st.sampled_from("xy").map(ProcessName)).map(tuple),
    forgetful=st.just(()) | st.just((ProcessName("a"),)),
)


@settings(deadline=None)
@given(st.lists(SNAPSHOTS, min_size=1, max_size=4), st.lists(st.sampled_from(["processes", "waits", "in_transit"])))
def test_a_packed_document_is_unpacked_unchanged(snapshots: list[Snapshot], again: list[str]) -> None:
    documents = PackedDocuments()
    first = snapshots[0]
    for snapshot in snapshots:
        one = replace(snapshot, **{name: getattr(first, name) for name in again})
        text = unpacked(documents.pack(one))
        assert text == json.dumps(write_document(one), separators=(",", ":"))


def test_an_identical_part_is_not_packed_again() -> None:
    documents = PackedDocuments()
    many = WaitColumns.of(Wait(waiter=PartyName(f"a/{at}"), among=(PartyName(f"b/{at}"),)) for at in range(3000))
    first = documents.pack(Snapshot(ref=SnapshotRef(id=SnapshotId(1)), waits=many))
    known = dict(documents._parts)
    second = documents.pack(Snapshot(ref=SnapshotRef(id=SnapshotId(2)), waits=many))
    assert documents._parts["waits"] is known["waits"]
    assert unpacked(second) == unpacked(first).replace('"id":1', '"id":2')


def test_an_unchanged_time_is_not_packed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[float] = []

    def noted(seconds: float) -> str:
        written.append(seconds)
        return write_time(seconds)

    monkeypatch.setattr(packed_documents, "write_time", noted)
    documents = PackedDocuments()
    for since in ([1.0, 2.0, 2.0], [2.0, 3.0], [1.0]):
        of_one = [Wait(waiter=PartyName(f"a/{at}"), among=(PartyName("b"),), since=one) for at, one in enumerate(since)]
        snapshot = Snapshot(waits=WaitColumns.of(of_one))
        assert unpacked(documents.pack(snapshot)) == json.dumps(write_document(snapshot), separators=(",", ":"))
    assert sorted(written) == [1.0, 1.0, 2.0, 3.0], "1.0 was forgotten with the waits that had it"
