"""Incidents: one deadlock seen in many snapshots is one incident, with one id, from the first verdict to its end.

Rules:

1. Two cores are of one incident when they share a party in the very same wait (same run of the process, same wait number):
   whoever is stuck stays stuck, so a core that grows or shrinks while a cure is under way is still the same one. The same
   names in new waits are a new incident.
2. Each strongly connected part of a verdict's core is a core by itself, and the id comes from it
   (:mod:`detector.core.incident_identity`).
3. An incident ends when a definite verdict, on a snapshot that began after the incident was last seen, no longer shows it;
   or when a process of its core is no member any more. UNDETERMINED neither opens nor ends one, and a verdict without the
   word of one of its processes does not end it.
4. Seen again after it ended (its process had only been silent), it is open again under its own id.
5. A deadlock is a gridlock too, one that no deadline ends; it is one incident all the same, the deadlock's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from detector.core.assembler import Assembled
from detector.core.incident_identity import Core, WaitKey, cores_of, incident_id
from detector.core.snapshot import Snapshot
from detector.graph.columns import WaitColumns
from detector.predicates.core_components import core_component
from stilltrue.model import Holds, PartyName, ProcessId, ProcessName, SnapshotId, Verdict, process_of

GRIDLOCK = "gridlock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """One deadlock. Times in seconds since the epoch; ``keys`` are the waits that it is known by."""

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

    @property
    def open(self) -> bool:
        """Whether it has not ended."""
        return self.closed is None

    def detection_seconds(self) -> float | None:
        """How long from its last wait's beginning to the first verdict; None when nobody knows when it formed."""
        return None if self.formed is None else max(0.0, self.opened - self.formed)


class Incidents:
    """All open incidents, and what changes them. ``changed`` is told of each new state of an incident."""

    def __init__(
        self,
        *,
        open_ones: Iterable[Incident] = (),
        changed: Callable[[Incident], None],
        opened: Callable[[Incident], None],
        find: Callable[[str], Incident | None],
    ) -> None:
        """``open_ones``: open before a restart; ``opened``: told of each new one; ``find``: a closed one by its id, if kept."""
        self._open: dict[str, Incident] = {incident.id: incident for incident in open_ones}
        self._changed = changed
        self._opened = opened
        self._find = find

    def open_ones(self) -> list[Incident]:
        """Those that have not ended, the newest first."""
        return sorted(self._open.values(), key=lambda incident: (-incident.opened, incident.id))

    def judged(self, verdict: Verdict, assembled: Assembled, now: float) -> bool:
        """A verdict was given: whether an incident began or ended by it."""
        if verdict.snapshot.scope != "all" or verdict.holds is Holds.UNDETERMINED:
            return False  # rule 3; and every core of a scope is one of all
        cores = _cores(verdict.core, assembled) if verdict.holds is Holds.TRUE else []
        if verdict.predicate == GRIDLOCK:
            cores = [core for core in cores if not core.lasting]  # rule 5
        seen: dict[str, list[Core]] = {}
        new: list[Core] = []
        for core in cores:
            known = self._known(verdict.predicate, core)
            if known is None:
                new.append(core)
            else:
                seen.setdefault(known.id, []).append(core)
        for known_id, parts in seen.items():
            self._seen(self._open[known_id], parts, verdict, now)
        ended = self._end_unseen(verdict, assembled, frozenset(seen), now)
        for core in new:
            self._begin(core, verdict, assembled.snapshot, now)
        return bool(new) or ended

    def left(self, process: ProcessId, why: str, now: float) -> None:
        """Rule 3: a process is no member any more."""
        for incident in self.open_ones():
            if any(process_of(PartyName(name)) == process.instance for name, _, _ in incident.keys):
                self._close(incident, f"{process.instance} is no member any more: {why}", now)

    def _known(self, predicate: str, core: Core) -> Incident | None:
        """Rule 1: the oldest open incident that shares a wait with ``core``."""
        keys = frozenset(core.keys)
        matching = [i for i in self._open.values() if i.predicate == predicate and not keys.isdisjoint(i.keys)]
        return min(matching, key=lambda incident: (incident.opened, incident.id), default=None)

    def _seen(self, incident: Incident, parts: list[Core], verdict: Verdict, now: float) -> None:
        """An incident is seen again: its core is what there is of it now."""
        parties = tuple(sorted(party for part in parts for party in part.parties))
        alone = set(parties) == set(verdict.core)
        fresh = replace(
            incident,
            core=parties,
            behind=verdict.behind if alone else incident.behind,
            keys=tuple(sorted(key for part in parts for key in part.keys)),
            seen=now,
            last_snapshot=verdict.snapshot.id or incident.last_snapshot,
        )
        self._open[incident.id] = fresh
        if fresh.core != incident.core or now - incident.seen >= 1.0 or fresh.behind != incident.behind:
            self._changed(fresh)

    def _begin(self, core: Core, verdict: Verdict, judged: Snapshot, now: float) -> None:
        new_id = incident_id(verdict.predicate, core.keys)
        snapshot = verdict.snapshot.id or SnapshotId(0)
        before = self._find(new_id)
        if before is not None:  # rule 4
            incident = replace(before, closed=None, ending="", seen=now, last_snapshot=snapshot, keys=core.keys)
        else:
            part = core_component(verdict, judged, core.parties)
            incident = Incident(
                id=new_id,
                predicate=verdict.predicate,
                scope=verdict.snapshot.scope,
                core=core.parties,
                behind=part.behind,
                opened=now,
                seen=now,
                formed=core.formed,
                first_snapshot=snapshot,
                last_snapshot=snapshot,
                text=part.text,
                waits=part.waits,
                keys=core.keys,
            )
        self._open[new_id] = incident
        if before is None:
            self._opened(incident)
        self._changed(incident)

    def _end_unseen(self, verdict: Verdict, assembled: Assembled, seen: frozenset[str], now: float) -> bool:
        """Rule 3: end the incidents that a definite verdict, begun after they were last seen, no longer shows."""
        begun = verdict.snapshot.begun
        ended = False
        lasting = frozenset(_keys(assembled.snapshot.waits, assembled))
        for incident in self.open_ones():
            if incident.predicate != verdict.predicate or incident.id in seen or begun is None or begun < incident.seen:
                continue
            silent = any(process_of(party) in assembled.snapshot.missing for party in incident.core)
            if silent or (verdict.holds is Holds.TRUE and lasting.issuperset(incident.keys)):
                continue  # the answer is about others, and says nothing certain of this one
            self._close(incident, _how(incident, lasting, verdict), now)
            ended = True
        return ended

    def _close(self, incident: Incident, ending: str, now: float) -> None:
        del self._open[incident.id]
        self._changed(replace(incident, closed=now, ending=ending))


def _how(incident: Incident, lasting: frozenset[WaitKey], verdict: Verdict) -> str:
    """How an incident ended: whose waits are over."""
    freed = list(dict.fromkeys(key[0] for key in incident.keys if key not in lasting))
    who = f"{', '.join(freed[:3])}{' and others' if len(freed) > 3 else ''} went on" if freed else "all could go on again"
    return f"{who} before snapshot {verdict.snapshot.id}"


def _cores(core: tuple[PartyName, ...], assembled: Assembled) -> list[Core]:
    waits = assembled.snapshot.waits
    return cores_of(core, waits, lambda at: _incarnation(waits.names[waits.waiter[at]], assembled))


def _keys(waits: WaitColumns, assembled: Assembled) -> Iterable[WaitKey]:
    for waiter, number in zip(waits.named(waits.waiter), waits.number.tolist(), strict=True):
        yield waiter, _incarnation(waiter, assembled), max(0, number)


def _incarnation(waiter: PartyName, assembled: Assembled) -> int:
    report = assembled.reports.get(ProcessName(process_of(waiter)))
    return 0 if report is None else report.process.incarnation
