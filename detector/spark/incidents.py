"""From the cores seen in an archive to its incidents: the service's rules, applied afterwards."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stilltrue.model import PartyName, process_of


@dataclass(frozen=True, slots=True, kw_only=True)
class PastIncident:
    """One deadlock of the past. Times in seconds since the epoch; ``closed`` is None when the archive ends before it does."""

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

    @property
    def detection_seconds(self) -> float | None:
        """From the beginning of the core's last wait to the end of the first snapshot that showed it."""
        return None if self.formed is None else max(0.0, self.opened - self.formed)


def past_incidents(
    sightings: Iterable[Any], definite: Sequence[tuple[int, float]], services: Mapping[str, str] | None = None
) -> list[PastIncident]:
    """Incidents from rows of :func:`~detector.spark.trends.core_sightings`, in the order of their beginning.

    Parameters
    ----------
    sightings : by their first snapshot.
    definite : ``(snapshot, ended)`` of every snapshot whose verdict is true or false, sorted: an incident is over at the first
        of them that no longer shows it.
    services : each process's service, where it is known.

    Notes
    -----
    Cores that share a wait (same party, incarnation and number) are one incident, under the id of the first. ``recurrence``
    says the how-manieth incident it is with these very processes.
    """
    owner: dict[str, str] = {}
    groups: dict[str, list[Any]] = {}
    for row in sightings:
        known = sorted({owner[key] for key in row["keys"] if key in owner}, key=lambda name: groups[name][0]["first_snapshot"])
        name = known[0] if known else row["id"]
        for other in known[1:]:
            groups[name] += groups.pop(other)
            owner.update((key, name) for key, held in owner.items() if held == other)
        groups.setdefault(name, []).append(row)
        owner.update((key, name) for key in row["keys"])
    times: dict[tuple[str, ...], int] = {}
    return [_incident(name, rows, definite, times, services or {}) for name, rows in groups.items()]


def _incident(
    name: str,
    rows: Sequence[Any],
    definite: Sequence[tuple[int, float]],
    times: dict[tuple[str, ...], int],
    services: Mapping[str, str],
) -> PastIncident:
    last = max(row["last_snapshot"] for row in rows)
    after = bisect_right(definite, (last, float("inf")))
    newest = max(rows, key=lambda row: row["last_snapshot"])
    processes = tuple(sorted({process_of(PartyName(party)) for party in newest["parties"]}))
    times[processes] = times.get(processes, 0) + 1
    return PastIncident(
        id=name,
        first_snapshot=min(row["first_snapshot"] for row in rows),
        last_snapshot=last,
        snapshots=sum(row["snapshots"] for row in rows),
        formed=rows[0]["formed"],
        opened=min(row["opened"] for row in rows),
        seen=max(row["seen"] for row in rows),
        closed=definite[after][1] if after < len(definite) else None,
        parties=tuple(newest["parties"]),
        processes=processes,
        services=tuple(sorted({services[process] for process in processes if process in services})),
        recurrence=times[processes],
    )
