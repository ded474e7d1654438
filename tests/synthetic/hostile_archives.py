"""Archives as disks, copies and people leave them, and the service's verdicts on what they hold."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from detector.archive.compact import compact
from detector.archive.files import ArchiveFiles
from detector.archive.rows.row_decoder import verdict_of
from detector.archive.rows.schema import VERSION_KEY
from detector.archive.writer import ArchiveWriter
from detector.core.membership_doubt import About, MembershipDoubt
from detector.core.protocol.assembler import PendingSnapshot
from detector.core.registry import find_predicates
from stilltrue.model import Activity, SnapshotId, Verdict
from tests.synthetic.random_snapshots import Judged, RandomSnapshot, WorldShape, judged, random_snapshots

NAMES = ("deadlock", "gridlock", "termination", "token-lost", "quiescence")
Key = tuple[str | None, int, str]
"""Archive, snapshot, predicate."""
DETECTORS = {"one": 24, "two": 15}
"""Two detectors whose snapshots have the same numbers, and how many each has."""
JOINING = MembershipDoubt(about=About.STATES, text="2 of 3 expected have joined")
_IDLE = {"activity": Activity.IDLE, "made": (), "served": (), "waits": (), "seen": (), "pools": (), "holds": ()}


@cache
def doubted_run() -> Judged:
    """Random snapshots; in some everybody seems idle, and of those some idleness is in doubt, or a member has yet to join."""
    random = Random(4)
    made = [_still(each, random) if random.random() < 0.4 else each for each in random_snapshots(5, 24, WorldShape())]
    return judged(made, find_predicates(NAMES))


def _still(made: RandomSnapshot, random: Random) -> RandomSnapshot:
    ref = made.assembled.snapshot.ref
    pending = PendingSnapshot(snapshot=SnapshotId(1), members=made.members, begun=ref.begun or 0.0, begun_by="period")
    doubtful, joining = random.random() < 0.3, random.random() < 0.3
    for report in made.assembled.reports.values():
        pending.offer(replace(report, snapshot=SnapshotId(1), lost=0, doubt="a timer" if doubtful else "", **_IDLE))  # type: ignore[arg-type]
    assembled = pending.assembled(ref.ended or 0.0)
    snapshot = replace(assembled.snapshot, membership=(JOINING,) if joining else ())
    return replace(made, assembled=replace(assembled, snapshot=snapshot))


@cache
def wanted() -> Mapping[Key, Verdict]:
    """The services' verdicts."""
    return {
        (archive, verdict.snapshot.id or 0, verdict.predicate): verdict
        for archive, until in DETECTORS.items()
        for verdict in doubted_run().verdicts
        if (verdict.snapshot.id or 0) <= until
    }


def written(folder: Path) -> Path:
    """The archive of both detectors in one folder, in files of a few snapshots each."""
    for archive, until in DETECTORS.items():
        writer = ArchiveWriter(ArchiveFiles(str(folder)), archive=archive, reports_max=40, seconds_max=1e9)
        for made in doubted_run().made[:until]:
            writer.add(made.assembled, members=made.members)
        writer.flush()
    return folder


def without_ids(folder: Path, seed: int, later: float) -> Path:
    """The archive of a detector from before detectors had ids: ``12 + seed`` snapshots, ``later`` by so many seconds."""
    writer = ArchiveWriter(ArchiveFiles(str(folder)), archive="", reports_max=40, seconds_max=1e9)
    for made in random_snapshots(seed, 12 + seed, WorldShape()):
        snapshot = made.assembled.snapshot
        begun = replace(snapshot.ref, begun=(snapshot.ref.begun or 0.0) + later)
        writer.add(replace(made.assembled, snapshot=replace(snapshot, ref=begun)), members=made.members)
    writer.flush()
    for table, columns in (("reports", ["archive"]), ("snapshots", ["archive"])):
        for path in _files(folder, table):
            if "archive" in pq.read_schema(path).names:
                _rewritten(path, lambda rows, columns=columns: rows.drop(columns), version=3)  # type: ignore[misc]
    return folder


def verdict_rows(folder: Path) -> dict[Key, Verdict]:
    """The verdicts of a result table, of each the newest revision."""
    rows = [row for path in sorted(folder.rglob("*.parquet")) for row in pq.ParquetFile(path).read().to_pylist()]
    newest = {(row["archive"], row["snapshot"], row["predicate"]): row for row in sorted(rows, key=_revision)}
    return {key: verdict_of(row) for key, row in newest.items()}


def _revision(row: Mapping[str, int | None]) -> int:
    return row["revision"] or 0


def _files(folder: Path, table: str) -> list[Path]:
    return sorted(folder.glob(f"{table}/*/*.parquet"))


def _shuffled_times(folder: Path) -> None:
    random = Random(2)
    for path in folder.rglob("*.parquet"):  # all of them older than Spark's own source would take
        os.utime(path, (1e9 + 1e6 * random.random(),) * 2)


def _doubled(folder: Path) -> None:
    for table in ("reports", "snapshots"):
        for path in _files(folder, table)[::2]:
            shutil.copy(path, path.with_name(f"copy-{path.name}"))


def _reordered(folder: Path) -> None:
    for path in _files(folder, "reports"):
        _rewritten(path, lambda rows: rows.take(pa.array(range(rows.num_rows - 1, -1, -1))))


def _other_days(folder: Path) -> None:
    """As over midnight, or after a copy by hand."""
    for day in ("2026-09-20", "2031-01-01"):
        (folder / "reports" / f"day={day}").mkdir()
        for path in _files(folder, "reports")[::3]:
            shutil.move(path, folder / "reports" / f"day={day}" / path.name)


def _mixed_versions(folder: Path) -> None:
    for table, columns in (("reports", ["before"]), ("snapshots", ["previous"])):
        for path in _files(folder, table)[:4]:
            _rewritten(path, lambda rows, columns=columns: rows.drop(columns), version=3)  # type: ignore[misc]


def _compacted_twice(folder: Path) -> None:
    store = ArchiveFiles(str(folder))
    compact(store, bytes_target=60_000)
    compact(store)


def _restored_after_compaction(folder: Path) -> None:
    before = folder.with_name("before")
    shutil.copytree(folder, before)
    compact(ArchiveFiles(str(folder)))
    for path in before.rglob("*.parquet"):
        shutil.copy(path, folder / path.relative_to(before).with_name(f"restored-{path.name}"))
    compact(ArchiveFiles(str(folder)))


def _under_way(folder: Path) -> None:
    """A copy that is not finished: rsync's temporary names, a browser's, and those of our own writer."""
    for table in ("reports", "snapshots"):
        for path in _files(folder, table)[::3]:
            half = path.read_bytes()[: path.stat().st_size // 2]
            for name in (f".{path.name}.Xk3f9Q", f"{path.name}.crdownload", f"_{path.name}.part", f"{path.name}.tmp"):
                path.with_name(name).write_bytes(half)


def _other_names(folder: Path) -> None:
    """Files that somebody has renamed."""
    for table in ("reports", "snapshots"):
        for number, path in enumerate(_files(folder, table)[::2]):
            path.rename(path.with_name(f"Kopie von {number} (März) 000000000001.parquet"))


def _linked(folder: Path) -> None:
    """Some files, and a day's folder, lie elsewhere and are linked from here."""
    elsewhere = folder.with_name("elsewhere")
    elsewhere.mkdir()
    for path in _files(folder, "reports")[::2]:
        shutil.move(path, elsewhere / path.name)
        path.symlink_to(elsewhere / path.name)
    day = min((folder / "snapshots").iterdir())
    shutil.move(day, elsewhere / "day")
    day.symlink_to(elsewhere / "day", target_is_directory=True)


def _without_rows(folder: Path) -> None:
    """Files of our schema without a row, and folders of days without a file."""
    for table in ("reports", "snapshots"):
        path = _files(folder, table)[0]
        shutil.copy(path, path.with_name("none.parquet"))
        _rewritten(path.with_name("none.parquet"), lambda rows: rows.slice(0, 0))
        (folder / table / "day=2020-02-30").mkdir()


def _one_row_a_group(folder: Path) -> None:
    """As another tool writes them: small row groups, other compression, columns in another order."""
    for path in _files(folder, "reports")[::2]:
        rows = pq.ParquetFile(path).read()
        rows = rows.select(rows.column_names[::-1])
        pq.write_table(rows, path, row_group_size=1, compression="gzip")


def _put_together(folder: Path) -> None:
    """Another tool has made one file of several, of both detectors."""
    for table in ("reports", "snapshots"):
        paths = _files(folder, table)
        some = sorted({*paths[:3], *paths[-3:]})
        rows = [pq.ParquetFile(path).read() for path in some]
        schema = max((each.schema for each in rows), key=len)
        for path in some:
            path.unlink()
        together = pa.concat_tables(rows, promote_options="default").replace_schema_metadata(schema.metadata)
        pq.write_table(together.sort_by("snapshot"), some[0], row_group_size=7)


def _foreign(folder: Path) -> None:
    """Somebody's own tables, text and empty files among ours."""
    for table in ("reports", "snapshots"):
        day = _files(folder, table)[0].parent
        pq.write_table(pa.table({"snapshot": [1, 2], "price": [1.5, 2.5]}), day / "prices.parquet")
        (day / "empty.parquet").write_bytes(b"")
        (day / "notes.parquet").write_text("not a table")


def _dangling(folder: Path) -> None:
    path = _files(folder, "reports")[1]
    path.unlink()
    path.symlink_to(folder / "nowhere.parquet")


def _deleted(table: str) -> Callable[[Path], None]:
    return lambda folder: _files(folder, table)[1].unlink()


def _torn(table: str) -> Callable[[Path], None]:
    def tear(folder: Path) -> None:
        path = _files(folder, table)[1]
        path.write_bytes(path.read_bytes()[:300])

    return tear


def _rows_lost(folder: Path) -> None:
    for path in _files(folder, "reports")[:3]:
        _rewritten(path, lambda rows: rows.filter(pc.not_equal(rows.column("process"), "p01")))


def _rewritten(path: Path, change: Callable[[pa.Table], pa.Table], *, version: int = 0) -> None:
    metadata = dict(pq.read_schema(path).metadata)
    if version:
        metadata[VERSION_KEY] = str(version).encode()
    pq.write_table(change(pq.ParquetFile(path).read()).replace_schema_metadata(metadata), path)


HARMLESS: dict[str, Callable[[Path], None]] = {
    "as written": lambda folder: None,
    "shuffled times": _shuffled_times,
    "doubled": _doubled,
    "reordered": _reordered,
    "other days": _other_days,
    "mixed versions": _mixed_versions,
    "compacted twice": _compacted_twice,
    "restored after compaction": _restored_after_compaction,
    "copy under way": _under_way,
    "other names": _other_names,
    "linked": _linked,
    "without rows": _without_rows,
    "one row a group": _one_row_a_group,
    "put together": _put_together,
}
"""What keeps every row."""
LOSSY: dict[str, Callable[[Path], None]] = {
    "reports deleted": _deleted("reports"),
    "reports torn": _torn("reports"),
    "rows of reports lost": _rows_lost,
    "snapshots deleted": _deleted("snapshots"),
    "snapshots torn": _torn("snapshots"),
    "reports linked to nowhere": _dangling,
}
FOREIGN = {"foreign files": _foreign}
"""What keeps every row, and leaves files here that cannot be read."""


def harmed(folder: Path, name: str) -> Path:
    """The archive of :func:`written` after one of these."""
    (HARMLESS | LOSSY | FOREIGN)[name](written(folder))
    return folder
