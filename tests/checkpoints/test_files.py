"""Snapshot files: every storable value survives the round trip; torn, damaged, newer or foreign files are refused."""

from __future__ import annotations

import math
import os
import pickle
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detector.checkpoints.protocol.points import CompletedPoint, PointKind, Record, State, Value
from detector.checkpoints.storage.directory import PointDirectory
from detector.checkpoints.storage.files import FileFault, FileKind, SnapshotFileError, read_body, write_body
from detector.checkpoints.storage.snapshot_codec import LiveSnapshot, read_channels, read_point, write_channels, write_point
from detector.checkpoints.storage.values import ValueKindError, from_json, to_json
from stilltrue.fifo import channel
from stilltrue.model import ProcessName, SnapshotId

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4) | st.just("$bytes"), inner, max_size=4),
    max_leaves=12,
)
A, B = ProcessName("a-1"), ProcessName("b-1")
LIVE: LiveSnapshot = LiveSnapshot(
    snapshot=SnapshotId(7),
    states={A: b"\x00state", B: b""},
    channels={channel("a-1", "b-1"): (b"one", b"\xfftwo"), channel("b-1", "a-1"): ()},
)


def point(id_: int = 3, *, kind: PointKind = PointKind.PERIODIC, name: str = "", state: Value = None) -> CompletedPoint:
    snapshot = State(
        snapshot=SnapshotId(id_),
        states={A: state, B: {"x": [1, b"2", 3.5]}},
        channels={channel("b-1", "a-1"): (Record(value={"n": 1}, key="k"), Record(value=b"raw"))},
    )
    return CompletedPoint(
        id=SnapshotId(id_), kind=kind, name=name, triggered=1.5, completed=2.0, snapshot=snapshot, finished=(A,)
    )


@settings(deadline=None)
@given(values)
def test_every_value_survives_the_round_trip(value: Value) -> None:
    assert from_json(to_json(value)) == value
    assert type(from_json(to_json(value))) is type(value)


def test_floats_that_json_cannot_express_survive_too() -> None:
    assert from_json(to_json([math.inf, -math.inf])) == [math.inf, -math.inf]
    nan = from_json(to_json(math.nan))
    assert isinstance(nan, float)
    assert math.isnan(nan)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": [1, {2}]}, r"state.a\[1\]: set cannot be stored"),
        ({1: 2}, "state: the key 1 is not a string"),
        (object(), "state: object cannot be stored"),
        ((1, 2), "state: tuple cannot be stored"),
    ],
)
def test_a_value_that_cannot_be_stored_is_refused_with_its_path(value: object, message: str) -> None:
    with pytest.raises(ValueKindError, match=message):
        to_json(value, "state")


def test_snapshots_survive_the_round_trip(tmp_path: Path) -> None:
    write_channels(tmp_path / "live", LIVE)
    assert read_channels(tmp_path / "live") == LIVE
    write_point(tmp_path / "point", point())
    assert read_point(tmp_path / "point") == point()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["live", "point"], "nothing is left beside them"


def test_a_file_cut_off_anywhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "point"
    write_point(path, point())
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(SnapshotFileError) as caught:
            read_point(path)
        assert caught.value.fault is (FileFault.TORN if length else FileFault.FOREIGN), (length, str(caught.value))
        assert str(path) in str(caught.value)


def test_a_file_with_any_byte_changed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "point"
    write_point(path, point())
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(SnapshotFileError):
            read_point(path)


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (pickle.dumps({"states": []}), FileFault.FOREIGN),
        (b"{}", FileFault.FOREIGN),
        (b"stilltrue-snapshot 2\nwhatever", FileFault.NEWER),
        (b"stilltrue-snapshot 1\npoint 2 abc\n{}", FileFault.DAMAGED),
        (b"stilltrue-snapshot 1\nchannels 2 abc\n{}", FileFault.OTHER_KIND),
        (b"stilltrue-snapshot x\npoint 2 abc\n{}", FileFault.DAMAGED),
    ],
)
def test_foreign_newer_and_other_files_each_have_their_message(tmp_path: Path, data: bytes, fault: FileFault) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(SnapshotFileError, match=fault.value) as caught:
        read_point(path)
    assert caught.value.fault is fault


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"snapshot": "x", "states": [], "channels": []},
        {"snapshot": True, "states": [], "channels": []},
        {"snapshot": 1, "states": [["a"]], "channels": []},
        {"snapshot": 1, "states": [["a", {"$what": 1}]], "channels": []},
        {"snapshot": 1, "states": [["a", {"$bytes": "?"}]], "channels": []},
        {"snapshot": 1, "states": [["a", "text"]], "channels": []},
        {"snapshot": 1, "states": {}, "channels": []},
    ],
)
def test_nonsensical_contents_are_refused(tmp_path: Path, body: dict[str, Value]) -> None:
    write_body(tmp_path / "f", FileKind.CHANNELS, body)
    with pytest.raises(SnapshotFileError, match="malformed contents"):
        read_channels(tmp_path / "f")


def test_a_body_that_is_not_a_mapping_is_refused(tmp_path: Path) -> None:
    write_body(tmp_path / "f", FileKind.CHANNELS, [1])
    with pytest.raises(SnapshotFileError, match="the body is not a mapping"):
        read_body(tmp_path / "f", FileKind.CHANNELS)


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "point"
    write_point(path, point())
    with pytest.raises(ValueKindError):
        write_point(path, point(state={1, 2}))  # type: ignore[arg-type]
    assert read_point(path) == point()
    assert list(tmp_path.iterdir()) == [path]


def test_a_directory_gives_every_pipelines_newest_point_and_its_savepoints(tmp_path: Path) -> None:
    directory = PointDirectory(tmp_path / "points")
    assert directory.latest() == ()
    one, other = directory.of(A), directory.of(ProcessName("x/1"))
    for id_ in (9, 10, 11):
        one.save(point(id_))
    one.drop(SnapshotId(11))
    one.drop(SnapshotId(11))
    other.save(point(4))
    named = point(12, kind=PointKind.SAVEPOINT, name="../before upgrade")
    one.save(named)
    one.drop(SnapshotId(12))
    assert [found.id for found in directory.latest()] == [10, 4]
    assert directory.savepoint("../before upgrade") == (named,)
    with pytest.raises(FileNotFoundError, match="there is no savepoint other"):
        directory.savepoint("other")
    assert all(path.is_relative_to(tmp_path / "points") for path in tmp_path.rglob("*.point"))


def test_a_torn_newest_point_is_refused_and_not_skipped(tmp_path: Path) -> None:
    folder = PointDirectory(tmp_path).of(A)
    folder.save(point(1))
    folder.save(point(2))
    newest = max(folder.path.iterdir())
    newest.write_bytes(newest.read_bytes()[:-1])
    with pytest.raises(SnapshotFileError, match="truncated"):
        PointDirectory(tmp_path).latest()


def test_a_file_is_synced_before_its_name_and_the_name_before_the_write_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f"
    flushed: list[tuple[bool, bool]] = []
    fsync = os.fsync

    def recorded(descriptor: int) -> None:
        of_folder = Path(f"/proc/self/fd/{descriptor}").resolve() == tmp_path.resolve()
        flushed.append((of_folder, path.exists()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", recorded)
    write_body(path, FileKind.CHANNELS, {"a": 1})
    assert flushed == [(False, False), (True, True)]


def test_a_failed_write_leaves_the_directory_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f"
    write_body(path, FileKind.CHANNELS, {"a": 1})

    def full(_descriptor: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space left"):
        write_body(path, FileKind.CHANNELS, {"a": 2})
    assert read_body(path, FileKind.CHANNELS) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]
