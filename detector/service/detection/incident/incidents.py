"""Incidents: one deadlock seen in many snapshots is one incident, with one id, from the first verdict to its end.

Rules:

1. Two cores are the same incident if they share a party in the same wait (same incarnation, same wait number). A stuck
   party stays stuck, so a core that grows, or shrinks while it is being resolved, is still the same incident. The same
   names in new waits are a new incident.
2. Each strongly connected component of a verdict's core is a separate core, and determines the id
   (:mod:`detector.core.incident_identity`).
3. An incident ends only on proof: a definite verdict, on a snapshot that began after the incident was last seen, no longer
   shows it, and every process of its core is accounted for, by a report of the same incarnation or by its end (a goodbye, a
   later incarnation, or forgotten). UNDETERMINED neither opens nor ends an incident, and silence does not end one.
4. An incident that is seen again after its end is reopened under its id.
5. A deadlock is also a gridlock that no deadline ends; it is still one incident, of the predicate deadlock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from detector.core.incident_identity import Core, WaitKey, detection_seconds, incident_id
from detector.core.protocol.assembler import Assembled
from detector.predicates.evidence.core_components import CoreComponent
from detector.service.detection.incident.seen_cores import SeenCores, seen_cores
from stilltrue.model import Holds, PartyName, ProcessId, ProcessName, SnapshotId, Verdict, process_of

CURES_MAX = 20
"""Maximum number of notes about cures kept with an incident."""


class CureNote(NamedTuple):
    """A cure's action or result: when (seconds since the epoch), by whom, and what."""

    at: float
    who: str
    text: str


SEEN_PER_SECOND_MAX = 200
"""Maximum rate of reporting open incidents as seen again; each is reported at most once per second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """One deadlock. Times in seconds since the epoch; ``keys``: the waits that identify it."""

    id: str
    predicate: str
    scope: str
    core: tuple[PartyName, ...]
    behind: tuple[PartyName, ...]
    opened: float
    seen: float
    closed: float | None = None
    formed: float | None = None
    first_snapshot: SnapshotId
    last_snapshot: SnapshotId
    text: str = ""
    waits: tuple[str, ...] = ()
    ending: str = ""
    keys: tuple[WaitKey, ...] = ()
    cures: tuple[CureNote, ...] = ()

    @property
    def open(self) -> bool:
        """Whether it has not ended."""
        return self.closed is None

    def detection_seconds(self) -> float | None:
        """See :func:`~detector.core.incident_identity.detection_seconds`."""
        return detection_seconds(self.formed, self.opened)

    def runs(self) -> frozenset[tuple[ProcessName, int]]:
        """The processes of its core with their incarnations."""
        return frozenset((process_of(PartyName(name)), incarnation) for name, incarnation, _ in self.keys)


class Incidents:
    """The open incidents. ``changed`` is called with each new state of an incident."""

    def __init__(
        self,
        *,
        open_ones: Iterable[Incident] = (),
        changed: Callable[[Incident], None],
        opened: Callable[[Incident], None],
        find: Callable[[str], Incident | None],
    ) -> None:
        """``open_ones``: open before a restart; ``opened``: called with each new one; ``find``: finds a closed one by id."""
        self.notes = 0
        """The number of notes about cures so far, from which the web UI notices new ones."""
        self._open: dict[str, Incident] = {}
        self._by_wait: dict[tuple[str, WaitKey], set[str]] = {}
        self._by_process: dict[tuple[ProcessName, int], set[str]] = {}
        self._count: Counter[str] = Counter()
        self._shown: Counter[ProcessName] = Counter()
        """The number of each process's parties in open incidents or behind them."""
        self._reported_at: dict[str, float] = {}
        """When ``changed`` was last called, by incident."""
        self._ended: dict[tuple[ProcessName, int], str] = {}
        """The processes of open incidents' cores that are no longer members, and why."""
        self._changed = changed
        self._opened = opened
        self._find = find
        for incident in open_ones:
            self._put(incident)

    def open_ones(self) -> list[Incident]:
        """The open incidents, the newest first."""
        return sorted(self._open.values(), key=lambda incident: (-incident.opened, incident.id))

    def shows(self, process: ProcessName) -> bool:
        """Whether a party of the process is in an open incident or behind one."""
        return self._shown[process] > 0

    def count(self, predicate: str) -> int:
        """The number of open incidents of a predicate."""
        return self._count[predicate]

    def concerns(self, verdict: Verdict) -> bool:
        """Whether a verdict can open, confirm or end an incident."""
        return bool(verdict.core) or self._count[verdict.predicate] > 0

    def cores_in(self, verdict: Verdict, assembled: Assembled) -> SeenCores | None:
        """The cores of a verdict, for :meth:`saw`; None if it can neither open nor end an incident. Thread-safe."""
        if verdict.snapshot.scope != "all" or verdict.holds is Holds.UNDETERMINED:
            return None  # rule 3; and the cores of a scope are also cores of "all"
        known = frozenset(key for predicate, key in list(self._by_wait) if predicate == verdict.predicate)
        return seen_cores(verdict, assembled, known)

    def saw(self, seen: SeenCores, now: float, *, opens: bool = True) -> bool:
        """Apply a verdict; return whether an incident began or ended. ``opens``: whether new ones may be opened."""
        verdict = seen.verdict
        again: dict[str, list[Core]] = {}
        new: list[Core] = []
        for core in seen.cores:
            known = self._known(verdict.predicate, core)
            if known is None:
                new.append(core)
            else:
                again.setdefault(known.id, []).append(core)
        for known_id, parts in again.items():
            self._see(self._open[known_id], parts, verdict, now)
        ended = self._end_unseen(seen, again, now)
        for core in new if opens else ():
            self._begin(core, seen, now)
        return bool(opens and new) or ended

    def over(self, process: ProcessId, why: str, now: float) -> None:
        """Record the end of a process's incarnation; an incident ends with the last process of its core (rule 3)."""
        run = process.instance, process.incarnation
        affected = [self._open[name] for name in sorted(self._by_process.get(run, ()))]
        if affected:
            self._ended[run] = why
        for incident in affected:
            if incident.runs() <= self._ended.keys():
                self._close(incident, f"{process.instance} is no longer a member: {why}", now)

    def note(self, id: str, note: CureNote) -> None:
        """Add a note about a cure to an incident, open or closed."""
        incident = self._open.get(id) or self._find(id)
        if incident is None:
            return
        self.notes += 1
        fresh = replace(incident, cures=(*incident.cures, note)[-CURES_MAX:])
        if fresh.open:
            self._put(fresh)
        self._changed(fresh)

    def _known(self, predicate: str, core: Core) -> Incident | None:
        """The oldest open incident that shares a wait with ``core`` (rule 1)."""
        ids = set().union(*(self._by_wait.get((predicate, key), ()) for key in core.keys))
        return min((self._open[each] for each in ids), key=lambda incident: (incident.opened, incident.id), default=None)

    def _see(self, incident: Incident, parts: list[Core], verdict: Verdict, now: float) -> None:
        """Update the core of an incident that is seen again."""
        parties = tuple(sorted(party for part in parts for party in part.parties))
        alone = len(parties) == len(verdict.core)
        fresh = replace(
            incident,
            core=parties,
            behind=verdict.behind if alone else incident.behind,
            keys=tuple(sorted(key for part in parts for key in part.keys)),
            seen=now,
            last_snapshot=verdict.snapshot.id or incident.last_snapshot,
        )
        self._put(fresh)
        again_seconds = max(1.0, len(self._open) / SEEN_PER_SECOND_MAX)
        due = now - self._reported_at.get(incident.id, incident.seen) >= again_seconds
        if fresh.core != incident.core or due or fresh.behind != incident.behind:
            self._reported_at[incident.id] = now
            self._changed(fresh)

    def _begin(self, core: Core, seen: SeenCores, now: float) -> None:
        verdict = seen.verdict
        new_id = incident_id(verdict.predicate, core.keys)
        snapshot = verdict.snapshot.id or SnapshotId(0)
        before = self._find(new_id)
        if before is not None:  # rule 4
            incident = replace(before, closed=None, ending="", seen=now, last_snapshot=snapshot, keys=core.keys)
        else:
            component = seen.components.get(core.keys) or CoreComponent(text=verdict.witness.text, waits=(), behind=())
            incident = Incident(
                id=new_id,
                predicate=verdict.predicate,
                scope=verdict.snapshot.scope,
                core=core.parties,
                behind=component.behind,
                opened=now,
                seen=now,
                formed=core.formed,
                first_snapshot=snapshot,
                last_snapshot=snapshot,
                text=component.text,
                waits=component.waits,
                keys=core.keys,
            )
        self._put(incident)
        if before is None:
            self._opened(incident)
        self._reported_at[incident.id] = now
        self._changed(incident)

    def _end_unseen(self, seen: SeenCores, again: Collection[str], now: float) -> bool:
        """End the incidents that the verdict proves to have ended (rule 3)."""
        verdict, begun = seen.verdict, seen.verdict.snapshot.begun
        unseen = [
            incident
            for incident in self._open.values()
            if incident.predicate == verdict.predicate
            and incident.id not in again
            and begun is not None
            and begun >= incident.seen
            and self._proven(incident, seen)
        ]
        for incident in unseen:
            self._close(incident, _ending(incident, seen, self._ended), now)
        return bool(unseen)

    def _proven(self, incident: Incident, seen: SeenCores) -> bool:
        """Whether every process of the core is accounted for, and not all of the incident's waits are still in force."""
        if any(name not in seen.incarnations and (name, run) not in self._ended for name, run in incident.runs()):
            return False
        return seen.verdict.holds is Holds.FALSE or not seen.in_force.issuperset(incident.keys)

    def _put(self, incident: Incident) -> None:
        self._remove(incident.id)
        self._open[incident.id] = incident
        self._count[incident.predicate] += 1
        self._shown.update(map(process_of, (*incident.core, *incident.behind)))
        for key in incident.keys:
            self._by_wait.setdefault((incident.predicate, key), set()).add(incident.id)
        for run in incident.runs():
            self._by_process.setdefault(run, set()).add(incident.id)

    def _remove(self, id: str) -> None:
        before = self._open.pop(id, None)
        if before is None:
            return
        self._count[before.predicate] -= 1
        for name in map(process_of, (*before.core, *before.behind)):
            self._shown[name] -= 1
            if not self._shown[name]:
                del self._shown[name]
        for key in before.keys:
            _discard(self._by_wait, (before.predicate, key), id)
        for run in before.runs():
            _discard(self._by_process, run, id)

    def _close(self, incident: Incident, ending: str, now: float) -> None:
        self._remove(incident.id)
        self._reported_at.pop(incident.id, None)
        self._ended = {run: why for run, why in self._ended.items() if run in self._by_process}
        self._changed(replace(incident, closed=now, ending=ending))


def _ending(incident: Incident, seen: SeenCores, left: Mapping[tuple[ProcessName, int], str]) -> str:
    """Describe an incident's end: the processes that have ``left``, and why, and the other parties whose waits have ended."""
    said = [f"{run[0]} is no longer a member: {left[run]}" for run in sorted(incident.runs() & left.keys())]
    ended = [key for key in incident.keys if key not in seen.in_force]
    freed = list(dict.fromkeys(name for name, run, _ in ended if (process_of(PartyName(name)), run) not in left))
    if freed or not said:
        who = f"{', '.join(freed[:3])}{' and others' if len(freed) > 3 else ''} went on" if freed else "all could go on again"
        said.append(f"{who} before snapshot {seen.verdict.snapshot.id}")
    return "; ".join(said)


K = TypeVar("K")


def _discard(index: dict[K, set[str]], at: K, id: str) -> None:
    index[at].discard(id)
    if not index[at]:
        del index[at]
