"""The store on disk: one SQLite file with snapshots, incidents, members, and the next unused snapshot id.

Tables: ``snapshots`` has the summaries (``SnapshotSummary``), ``documents`` the snapshots kept in full (the document as zlib
JSON, the verdicts as a ``GetSnapshotResponse``), ``incidents`` the incidents (JSON), ``members`` the members (JSON), ``meta``
the next id.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import sqlite3
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar, cast

from detector.service.detection.incident.incidents import CureNote, Incident
from detector.service.detection.membership.members import MemberRecord
from stilltrue.v1 import detector_pb2 as pb

T = TypeVar("T")

_FILE = "stilltrue.sqlite3"
_TRIM_EACH = 64
_BASE = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS snapshots (id INTEGER PRIMARY KEY, ended REAL, outcome TEXT NOT NULL, summary BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS documents (
    id INTEGER PRIMARY KEY, pinned INTEGER NOT NULL, bytes INTEGER NOT NULL, document BLOB NOT NULL, answers BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS documents_by_pin ON documents (pinned, id);
CREATE TABLE IF NOT EXISTS incidents (id TEXT PRIMARY KEY, opened REAL NOT NULL, closed REAL, body TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS incidents_by_time ON incidents (opened);
"""
_MEMBERS = """
CREATE TABLE members (name TEXT PRIMARY KEY, body TEXT NOT NULL) WITHOUT ROWID;
INSERT OR IGNORE INTO members
    SELECT party, json_object('instance', party, 'incarnation', run) FROM (
        SELECT CASE instr(json_extract(key.value, '$[0]'), '/') WHEN 0 THEN json_extract(key.value, '$[0]')
            ELSE substr(json_extract(key.value, '$[0]'), 1, instr(json_extract(key.value, '$[0]'), '/') - 1) END AS party,
            json_extract(key.value, '$[1]') AS run
        FROM incidents, json_each(incidents.body, '$.keys') AS key WHERE incidents.closed IS NULL
    );
"""
MIGRATIONS = (_BASE, _MEMBERS)
"""One migration per version; ``PRAGMA user_version`` counts those applied to a file.

Version 2 adds the members; for older files these are the processes of open incidents.
"""


class DirectoryInUseError(Exception):
    """Another detector writes to the directory."""


class NewerStateError(Exception):
    """The state was written by a later version; the message is one line."""


class DamagedError(Exception):
    """The file is corrupt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How much is kept; ``age_seconds_max`` 0: no age limit. Open incidents are always kept, and not counted."""

    summaries_max: int
    documents_max: int
    documents_pinned_max: int
    bytes_max: int
    incidents_max: int = 100_000
    age_seconds_max: float = 0
    damaged_max: int = 5


def state_file(directory: Path) -> Path:
    """The SQLite file of the state in ``directory``."""
    return directory / _FILE


def lock_directory(directory: Path) -> int:
    """Lock ``directory`` against other detectors; returns a file descriptor that holds the lock until it is closed."""
    directory.mkdir(parents=True, exist_ok=True)
    lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise DirectoryInUseError(f"{directory} is in use by another detector; each needs its own --data") from None
    return lock


def locks(lock: int, directory: Path) -> bool:
    """Whether ``lock`` is the lock of ``directory`` as it is now, and not of one that was deleted."""
    try:
        return (directory / "lock").stat().st_ino == os.fstat(lock).st_ino
    except OSError:
        return False


def wait_until_free(directory: Path) -> None:
    """Block until no detector uses ``directory``."""
    while True:
        directory.mkdir(parents=True, exist_ok=True)
        lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if locks(lock, directory):  # else the directory was replaced meanwhile: lock the new one
                return
        finally:
            os.close(lock)


def set_aside(directory: Path, now: float) -> Path:
    """Rename a damaged store instead of deleting it; returns its new name."""
    stamp = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%S.%f")
    kept = directory / f"{_FILE}.damaged-{stamp}"
    for suffix in ("", "-wal", "-shm"):
        file = directory / f"{_FILE}{suffix}"
        if file.exists():
            file.rename(f"{kept}{suffix}")
    return kept


def prune_damaged(directory: Path, bounds: Retention, now: float) -> None:
    """Delete all damaged stores but the newest ones, and those that are too old."""
    aside = sorted(directory.glob(f"{_FILE}.damaged-*"), reverse=True)
    names = list(dict.fromkeys(path.name.removesuffix("-wal").removesuffix("-shm") for path in aside))
    kept = set(names[: bounds.damaged_max])
    for path in aside:
        old = bounds.age_seconds_max and path.stat().st_mtime < now - bounds.age_seconds_max
        if old or path.name.removesuffix("-wal").removesuffix("-shm") not in kept:
            path.unlink(missing_ok=True)


def _reading_mode(file: Path) -> str:
    """The parameters with which SQLite can read ``file`` on a full or read-only disk."""
    log = Path(f"{file}-wal")
    if os.access(file, os.W_OK):
        return "?mode=rw"
    return "?mode=ro" if log.exists() and log.stat().st_size else "?mode=ro&immutable=1"


class Database:
    """An open store, for one thread at a time.

    Raises :class:`sqlite3.Error` or ``OSError`` if the disk fails, :class:`DamagedError` if the file is corrupt.
    """

    def __init__(self, directory: Path, bounds: Retention, *, writable: bool = True) -> None:
        """Open or create the store in ``directory``; unless ``writable``, an existing one on a full or read-only disk."""
        self._file = directory / _FILE
        self._bounds = bounds
        self._writes = 0
        if writable:
            directory.mkdir(parents=True, exist_ok=True)
        uri = self._file.absolute().as_uri() + ("" if writable else _reading_mode(self._file))
        try:
            self._db = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=1.0)
            try:
                self._open(writable=writable)
            except BaseException:
                self._db.close()
                raise
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError as error:
            raise DamagedError(str(error)) from error

    def _open(self, *, writable: bool) -> None:
        if writable:
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
        elif os.access(self._file, os.W_OK):
            # The index of the log is then in memory: a full disk has no space for it.
            self._db.execute("PRAGMA locking_mode=EXCLUSIVE")
        (health,) = self._db.execute("PRAGMA quick_check(1)").fetchone()
        if health != "ok":
            raise DamagedError(health)
        missing = self._missing_migrations()
        if writable:
            for number, script in missing:
                self._db.executescript(f"BEGIN IMMEDIATE; {script}; PRAGMA user_version = {number}; COMMIT")
        self._inode = self._file.stat().st_ino

    def _missing_migrations(self) -> list[tuple[int, str]]:
        """The migrations that the file lacks, with their numbers."""
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version > len(MIGRATIONS):
            raise NewerStateError(
                f"{self._file} was written by a later version (schema {version}; this one supports {len(MIGRATIONS)}): "
                "run that version, or use another --data"
            )
        return list(enumerate(MIGRATIONS[version:], version + 1))

    def is_there(self) -> bool:
        """Whether the file is still in place, neither deleted nor replaced."""
        try:
            return self._file.stat().st_ino == self._inode
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Close the database."""
        self._db.close()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """A transaction: committed at the end, rolled back on an exception."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield self._db
            self._db.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            raise

    # -- writing -------------------------------------------------------------------------------------------------------

    def reserve(self, below: int) -> None:
        """Record that every id below ``below`` may have been assigned."""
        self._db.execute(
            "INSERT INTO meta VALUES ('next_id', ?) ON CONFLICT (key) DO UPDATE SET value = max(value, excluded.value)",
            (below,),
        )

    def add_snapshot(self, summary: pb.SnapshotSummary, document: bytes, verdicts: list[bytes], *, pinned: bool) -> None:
        """Store a snapshot: its summary, and until the bounds remove it, its packed document and verdicts."""
        answers = pb.GetSnapshotResponse(summary=summary)
        for verdict in verdicts:
            answers.verdicts.add().ParseFromString(verdict)
        rest = zlib.compress(answers.SerializeToString(), 3)
        ref = summary.ref
        with self._transaction() as db:
            db.execute(
                "INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?, ?)",
                (ref.id, ref.ended, summary.outcome, summary.SerializeToString()),
            )
            db.execute(
                "INSERT OR REPLACE INTO documents VALUES (?, ?, ?, ?, ?)",
                (ref.id, pinned, len(document) + len(rest), document, rest),
            )
            if self._writes % _TRIM_EACH == 0:
                self._trim(db, ref.ended)
        self._writes += 1

    def put_incident(self, incident: Incident) -> None:
        """Store an incident."""
        body = json.dumps(dataclasses.asdict(incident))
        self._db.execute(
            "INSERT OR REPLACE INTO incidents VALUES (?, ?, ?, ?)", (incident.id, incident.opened, incident.closed, body)
        )

    def put_members(self, members: Mapping[str, MemberRecord | None]) -> None:
        """Store members; None removes one."""
        with self._transaction() as db:
            for name, record in members.items():
                if record is None:
                    db.execute("DELETE FROM members WHERE name = ?", (name,))
                else:
                    body = json.dumps(dataclasses.asdict(record))
                    db.execute("INSERT OR REPLACE INTO members VALUES (?, ?)", (name, body))

    def pin(self, id: int) -> None:
        """Keep a snapshot in full even when it is old."""
        self._db.execute("UPDATE documents SET pinned = 1 WHERE id = ?", (id,))

    def _trim(self, db: sqlite3.Connection, now: float) -> None:
        """Enforce the bounds as of ``now``: the oldest are deleted first, and unpinned documents before pinned ones."""
        db.execute(
            "DELETE FROM snapshots WHERE id <= (SELECT id FROM snapshots ORDER BY id DESC LIMIT 1 OFFSET ?)",
            (self._bounds.summaries_max,),
        )
        for pinned, most in ((0, self._bounds.documents_max), (1, self._bounds.documents_pinned_max)):
            db.execute(
                "DELETE FROM documents WHERE pinned = ? AND id <= "
                "(SELECT id FROM documents WHERE pinned = ? ORDER BY id DESC LIMIT 1 OFFSET ?)",
                (pinned, pinned, most),
            )
        db.execute(
            "DELETE FROM documents WHERE id IN (SELECT id FROM "
            "(SELECT id, sum(bytes) OVER (ORDER BY pinned DESC, id DESC) AS total FROM documents) WHERE total > ?)",
            (self._bounds.bytes_max,),
        )
        db.execute(
            "DELETE FROM incidents WHERE closed IS NOT NULL AND closed <= "
            "(SELECT closed FROM incidents WHERE closed IS NOT NULL ORDER BY closed DESC LIMIT 1 OFFSET ?)",
            (self._bounds.incidents_max,),
        )
        if self._bounds.age_seconds_max:
            before = now - self._bounds.age_seconds_max
            db.execute("DELETE FROM documents WHERE id IN (SELECT id FROM snapshots WHERE ended < ?)", (before,))
            db.execute("DELETE FROM snapshots WHERE ended < ?", (before,))
            db.execute("DELETE FROM incidents WHERE closed < ?", (before,))
        prune_damaged(self._file.parent, self._bounds, now)

    # -- reading -------------------------------------------------------------------------------------------------------

    def first_id(self) -> int:
        """The first id that was never assigned."""
        row = self._db.execute("SELECT max(value) FROM meta WHERE key = 'next_id'").fetchone()
        newest = self._db.execute("SELECT max(id) FROM snapshots").fetchone()
        return max(row[0] or 1, (newest[0] or 0) + 1)

    def summaries(self, limit: int) -> list[pb.SnapshotSummary]:
        """The newest first; ``kept``: whether the document is still stored."""
        rows = self._db.execute(
            "SELECT summary, EXISTS (SELECT 1 FROM documents d WHERE d.id = s.id) FROM snapshots s ORDER BY id DESC LIMIT ?",
            (limit,),
        )
        found = []
        for body, kept in rows:
            summary = pb.SnapshotSummary.FromString(body)
            summary.kept = bool(kept)
            found.append(summary)
        return found

    def snapshot(self, id: int) -> pb.GetSnapshotResponse | None:
        """A snapshot that is kept in full; ``id`` 0: the newest."""
        where, values = ("id = ?", (id,)) if id else ("1", ())
        row = self._db.execute(
            f"SELECT document, answers FROM documents WHERE {where} ORDER BY id DESC LIMIT 1", values
        ).fetchone()
        if row is None:
            return None
        answer = pb.GetSnapshotResponse.FromString(zlib.decompress(row[1]))
        answer.document_json = zlib.decompress(row[0]).decode()
        return answer

    def members(self) -> list[MemberRecord]:
        """The stored members, by name."""
        rows = self._db.execute("SELECT body FROM members ORDER BY name")
        return [_known_fields(MemberRecord, json.loads(body)) for (body,) in rows]

    def kept_between(self, first: int, last: int) -> list[int]:
        """The ids from ``first`` to ``last`` whose documents are still stored, in order."""
        rows = self._db.execute("SELECT id FROM documents WHERE id BETWEEN ? AND ? ORDER BY id", (first, last))
        return [number for (number,) in rows]

    def incidents(self, limit: int, opened_min: float = 0.0, *, open_only: bool = False) -> list[Incident]:
        """Incidents opened at ``opened_min`` or later, the newest first."""
        where = "opened >= ? AND closed IS NULL" if open_only else "opened >= ?"
        rows = self._db.execute(
            f"SELECT body FROM incidents WHERE {where} ORDER BY opened DESC, id LIMIT ?",
            (opened_min, limit),
        )
        return [_incident(json.loads(body)) for (body,) in rows]

    def incident(self, id: str) -> Incident | None:
        """Find the incident ``id``."""
        row = self._db.execute("SELECT body FROM incidents WHERE id = ?", (id,)).fetchone()
        return None if row is None else _incident(json.loads(row[0]))


def _incident(raw: dict[str, Any]) -> Incident:
    lists = {name: tuple(raw.get(name, ())) for name in ("core", "behind", "waits")}
    cures = tuple(CureNote(*each) for each in raw.get("cures", ()))
    return _known_fields(Incident, raw | lists | {"keys": tuple(map(tuple, raw.get("keys", ()))), "cures": cures})


def _known_fields(kind: type[T], raw: dict[str, Any]) -> T:
    """Build a record that any version may have written: unknown fields are ignored, missing ones get their defaults."""
    return kind(**{each.name: raw[each.name] for each in dataclasses.fields(cast("Any", kind)) if each.name in raw})
