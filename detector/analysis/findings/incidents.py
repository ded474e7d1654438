"""Derives incidents and near misses from the verdicts of an archive, by the service's rules."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from detector.archive.rows.local_state_rows import Row
from detector.archive.rows.schema import FLOAT64, INT32, INT64, STRING
from detector.core.incident_identity import detection_seconds
from stilltrue.model import PartyName, process_of

EPISODE_GAP_SNAPSHOTS = 5
Definite = dict[str | None, list[tuple[int, float]]]
_PARTIES = pa.list_(STRING)
SIGHTINGS = pa.schema(
    [
        ("archive", STRING),
        ("kind", STRING),
        ("id", STRING),
        ("processes", _PARTIES),
        ("snapshots", INT64),
        ("first_snapshot", INT64),
        ("last_snapshot", INT64),
        *((name, FLOAT64) for name in ("first", "last", "opened", "seen", "formed")),
        ("parties_max", INT64),
        ("parties", _PARTIES),
        ("keys", _PARTIES),
        ("saved_by", STRING),
    ]
)
"""A row per core (by its ``id``) and per episode of a near miss; see :func:`sightings`."""
INCIDENTS = pa.schema(
    [
        ("archive", STRING),
        ("id", STRING),
        ("first_snapshot", INT64),
        ("last_snapshot", INT64),
        ("snapshots", INT64),
        *((name, FLOAT64) for name in ("formed", "opened", "seen", "closed")),
        ("parties", _PARTIES),
        ("processes", _PARTIES),
        ("services", _PARTIES),
        ("recurrence", INT32),
    ]
)
NEAR_MISSES = pa.schema(
    [
        ("archive", STRING),
        ("processes", _PARTIES),
        ("snapshots", INT64),
        ("first", FLOAT64),
        ("last", FLOAT64),
        ("parties", INT64),
        ("saved_by", STRING),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PastIncident:
    """A past deadlock. Times in seconds since the epoch; ``closed`` is None if the archive ends before the deadlock does."""

    id: str
    first_snapshot: int
    last_snapshot: int
    snapshots: int
    formed: float | None
    opened: float
    seen: float
    closed: float | None
    parties: tuple[str, ...]
    processes: tuple[str, ...]
    services: tuple[str, ...] = ()
    recurrence: int = 1
    archive: str | None = None

    @property
    def detection_seconds(self) -> float | None:
        """See :func:`~detector.core.incident_identity.detection_seconds`."""
        return detection_seconds(self.formed, self.opened)


def sightings(verdicts: pa.Table) -> list[Row]:
    """Return how often each core and each near miss was seen, and from when to when.

    Parameters
    ----------
    verdicts : verdicts with their findings: ``archive, snapshot, begun, ended, predicate, holds, findings``.

    Returns
    -------
    list of rows of ``SIGHTINGS``, by first snapshot. A core is identified by its id, a near miss by the processes that would
    have been in its core. Near misses of the same processes form one episode while at most ``EPISODE_GAP_SNAPSHOTS`` snapshots
    lie between them. ``saved_by`` is the party that kept the first one open.
    """
    chosen = pc.and_(pc.equal(verdicts.column("predicate"), "deadlock"), pc.is_valid(verdicts.column("findings")))
    rows = _in_order(verdicts.filter(chosen)).select(["archive", "snapshot", "begun", "ended", "findings"]).to_pylist()
    newest: dict[tuple[Any, ...], Row] = {}
    found: list[Row] = []
    for row in rows:
        for finding in row["findings"]:
            processes = tuple(sorted({process_of(PartyName(party)) for party in finding["parties"]}))
            key = (row["archive"], finding["kind"], finding["id"], processes)
            sighting = newest.get(key)
            if sighting is None or (
                finding["id"] is None and row["snapshot"] - sighting["last_snapshot"] > EPISODE_GAP_SNAPSHOTS
            ):
                newest[key] = sighting = _first_seen(row, finding, processes)
                found.append(sighting)
            _seen_again(sighting, row, finding)
    return found


def _first_seen(row: Row, finding: Row, processes: tuple[str, ...]) -> Row:
    columns = {name: finding[name] for name in ("kind", "id", "parties", "keys", "saved_by", "formed")}
    return columns | {
        "archive": row["archive"],
        "processes": list(processes),
        "snapshots": 0,
        "first_snapshot": row["snapshot"],
        "first": row["begun"],
        "opened": row["ended"],
        "parties_max": 0,
    }


def _seen_again(sighting: Row, row: Row, finding: Row) -> None:
    sighting["snapshots"] += 1
    sighting |= {"last_snapshot": row["snapshot"], "last": row["begun"], "seen": row["ended"]}
    sighting["parties_max"] = max(sighting["parties_max"], len(finding["parties"]))


def near_miss_rows(seen: Sequence[Row]) -> list[Row]:
    """Return rows of ``NEAR_MISSES``, one per episode, the longest first."""
    found = [
        {name: row[name] for name in NEAR_MISSES.names} | {"parties": row["parties_max"]}
        for row in seen
        if row["kind"] == "near miss"
    ]
    return sorted(found, key=lambda row: (-row["snapshots"], row["processes"], row["first"]))


def definite_ends(verdicts: pa.Table) -> Definite:
    """Return ``(snapshot, ended)`` of every snapshot with a definite verdict of ``deadlock``, sorted, by archive."""
    chosen = pc.and_(pc.equal(verdicts.column("predicate"), "deadlock"), pc.not_equal(verdicts.column("holds"), "undetermined"))
    found: Definite = {}
    for row in _in_order(verdicts.filter(chosen)).select(["archive", "snapshot", "ended"]).to_pylist():
        found.setdefault(row["archive"], []).append((row["snapshot"], row["ended"] or 0.0))
    return found


def _in_order(verdicts: pa.Table) -> pa.Table:
    return verdicts.sort_by([("archive", "ascending"), ("snapshot", "ascending")])


def past_incidents(seen: Iterable[Row], definite: Definite, services: Mapping[str, str] | None = None) -> list[PastIncident]:
    """Return the incidents of an archive, by their first snapshot.

    Parameters
    ----------
    seen : rows of :func:`sightings`; only cores count.
    definite : from :func:`definite_ends`: an incident ends at its archive's first definite snapshot that no longer shows it.
    services : each process's service, if known.

    Notes
    -----
    Cores that share a wait (same party, incarnation and number) are one incident with the id of the first, unless it ended in
    between: freed parties may deadlock again before their waits have ended. ``recurrence`` is the occurrence number for this
    set of processes.
    """
    groups: dict[tuple[str | None, str], list[Row]] = {}
    cores = [row for row in seen if row["kind"] == "core"]
    for archive in sorted({row["archive"] for row in cores}, key=str):
        own = _grouped(
            sorted((row for row in cores if row["archive"] == archive), key=lambda row: (row["first_snapshot"], row["id"])),
            [snapshot for snapshot, _ in definite.get(archive, [])],
        )
        groups |= {(archive, name): rows for name, rows in own.items()}
    times: dict[tuple[str, ...], int] = {}
    return [_incident(at, rows, definite, times, services or {}) for at, rows in groups.items()]


def _grouped(cores: Iterable[Row], definite: Sequence[int]) -> dict[str, list[Row]]:
    """Group the cores of one archive by incident; ``definite``: its snapshots with a definite verdict."""
    owner: dict[str, str] = {}
    groups: dict[str, list[Row]] = {}
    for row in cores:
        shared = {owner[key] for key in row["keys"] if key in owner}
        still = (name for name in shared if not _over(groups[name], row["first_snapshot"], definite))
        known = sorted(still, key=lambda name: groups[name][0]["first_snapshot"])
        name = known[0] if known else row["id"]
        for other in known[1:]:
            groups[name] += groups.pop(other)
            owner.update((key, name) for key, held in owner.items() if held == other)
        groups.setdefault(name, []).append(row)
        owner.update((key, name) for key in row["keys"])
    return groups


def _over(rows: Sequence[Row], before: int, definite: Sequence[int]) -> bool:
    """Whether an incident ended before snapshot ``before``: a definite verdict in between showed none of its cores."""
    after = bisect_right(definite, max(row["last_snapshot"] for row in rows))
    return after < len(definite) and definite[after] < before


def _incident(
    at: tuple[str | None, str],
    rows: Sequence[Row],
    definite: Definite,
    times: dict[tuple[str, ...], int],
    services: Mapping[str, str],
) -> PastIncident:
    last = max(row["last_snapshot"] for row in rows)
    archive, name = at
    ends = definite.get(archive, [])
    after = bisect_right(ends, (last, float("inf")))
    newest = max(rows, key=lambda row: row["last_snapshot"])
    processes = tuple(sorted({process_of(PartyName(party)) for party in newest["parties"]}))
    times[processes] = times.get(processes, 0) + 1
    return PastIncident(
        archive=archive,
        id=name,
        first_snapshot=min(row["first_snapshot"] for row in rows),
        last_snapshot=last,
        snapshots=sum(row["snapshots"] for row in rows),
        formed=rows[0]["formed"],
        opened=min(row["opened"] for row in rows),
        seen=max(row["seen"] for row in rows),
        closed=ends[after][1] if after < len(ends) else None,
        parties=tuple(newest["parties"]),
        processes=processes,
        services=tuple(sorted({services[process] for process in processes if process in services})),
        recurrence=times[processes],
    )
