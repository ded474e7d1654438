"""Selects the content of a snapshot's picture: the relevant parties, their waits, and the number of parties left out."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from detector.core.snapshot import Snapshot
from detector.core.times import duration
from detector.graph.columns import WaitColumns
from stilltrue.model import Holds, PartyName, ProcessName, Verdict, Wait, process_of

BOXES_MAX = 30
"""Maximum number of boxes in a picture; of a larger remainder, the witness, then the core, then the nearest parties."""
OUTWARD_PARTIES_MAX = 1_000
"""Maximum number of parties that are ordered along the waits; the others are ordered by name."""

INWARD_STEPS_MAX = 8
"""The distance in waits, from the core or from parties that could run, up to which parties are ordered by distance."""


class Role(Enum):
    """Why a party is in the picture."""

    CORE = "core"
    BEHIND = "behind"
    WAITING = "waiting"
    FREE = "free"
    MISSING = "missing"


_Kind = tuple[ProcessName, Role, tuple[tuple[int, bytes], ...]]
"""The key of a box: the process, the role, and each wait's needs and targets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """Parties of one process with identical waits (usually one party): their role, and a line for each wait.

    ``witness`` and ``victim``: whether the verdict's witness or victims name one of them; a victim is named first.
    """

    name: str
    parties: tuple[PartyName, ...]
    role: Role
    witness: bool
    victim: bool
    waits: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrow:
    """The parties of box ``waiter`` wait for those of ``target``. ``core``: both are core. ``label``: the wait's purpose."""

    waiter: str
    target: str
    core: bool
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A picture before layout, with boxes in order of importance."""

    title: str
    subtitle: str
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    left_out: str


def scene_of(snapshot: Snapshot, verdict: Verdict, boxes_max: int = BOXES_MAX) -> Scene:
    """Select at most ``boxes_max`` boxes: the witness, then the core, the parties behind it, and those that they wait for."""
    rows = _Rows(snapshot.waits)
    groups = _groups(snapshot, rows, verdict)
    marked = frozenset(verdict.witness.parties), frozenset(verdict.victims)
    boxes = [_box(snapshot, rows, marked, parties, role) for (_, role, _), parties in list(groups.items())[:boxes_max]]
    of_party = {party: box for box in boxes for party in box.parties}
    arrows: dict[tuple[str, str], Arrow] = {}
    for box in boxes:
        for row in rows.waits_of(box.parties[0]):
            label = label_of(row, snapshot.ref.ended)
            for target in [of_party[party] for party in row.among if party in of_party]:
                core = box.role is Role.CORE and target.role is Role.CORE
                arrow = Arrow(waiter=box.name, target=target.name, core=core, label=label)
                arrows.setdefault((box.name, target.name), arrow)
    return Scene(
        title=f"{verdict.predicate}: {verdict.holds.value}",
        subtitle=verdict.witness.text,
        boxes=tuple(boxes),
        arrows=tuple(arrows.values()),
        left_out=_left_out(verdict, of_party, len(snapshot.waits.names)),
    )


class _Rows:
    """Maps parties to their rows in ``waits``."""

    def __init__(self, waits: WaitColumns) -> None:
        self._waits = waits
        self._begins: list[int] = waits.waiter.searchsorted(np.arange(len(waits.names) + 1)).tolist()

    def at(self, party: int) -> range:
        """The rows of the party at ``party``."""
        return range(self._begins[party], self._begins[party + 1])

    def of(self, party: PartyName) -> range:
        """The rows of ``party``."""
        return self.at(bisect_left(self._waits.names, party))

    def waits_of(self, party: PartyName) -> list[Wait]:
        """The waits of ``party`` as values."""
        return [self._waits.wait(row) for row in self.of(party)]


def _groups(snapshot: Snapshot, rows: _Rows, verdict: Verdict) -> dict[_Kind, list[PartyName]]:
    """All parties in order of importance, grouped if they differ only in name."""
    waits = snapshot.waits
    core, behind = frozenset(verdict.core), frozenset(verdict.behind)
    waiting = frozenset(waits.waiter.tolist())
    groups: dict[_Kind, list[PartyName]] = {}
    for at in _order(waits, rows, verdict):
        party = waits.names[at]
        role = _role(party, snapshot, core, behind, waiting=at in waiting)
        content = tuple((int(waits.needs[row]), waits.targets_of(row).tobytes()) for row in rows.at(at))
        groups.setdefault((process_of(party), role, content), []).append(party)
    return groups


def _box(
    snapshot: Snapshot,
    rows: _Rows,
    marked: tuple[frozenset[PartyName], frozenset[PartyName]],
    parties: list[PartyName],
    role: Role,
) -> Box:
    witness, victims = marked
    parties = sorted(parties, key=lambda party: party not in victims)
    several = f"{parties[0]} +{len(parties) - 1}" if len(parties) > 1 else parties[0]
    oldest = min(parties, key=lambda party: _since(snapshot.waits, rows.of(party))) if len(parties) > 1 else parties[0]
    return Box(
        name=several,
        parties=tuple(parties),
        role=role,
        witness=not witness.isdisjoint(parties),
        victim=not victims.isdisjoint(parties),
        waits=tuple(label_of(row, snapshot.ref.ended) for row in rows.waits_of(oldest)),
    )


def _since(waits: WaitColumns, rows: range) -> float:
    """When the first of these waits began; 0 if there is none or it is unknown."""
    return min((0.0 if math.isnan(since) else since for since in waits.since[rows.start : rows.stop].tolist()), default=0.0)


def label_of(wait: Wait, now: float | None) -> str:
    """A wait's purpose and age: ``3.2 s for a worker of stock (4 of 4 busy): 1 of 4``."""
    since = f"{duration(now - wait.since)} " if now is not None and wait.since is not None and now >= wait.since else ""
    what = wait.what or ", ".join(wait.among[:2]) + (", ..." if len(wait.among) > 2 else "")
    count = "" if len(wait.among) == 1 else f": {wait.needs} of {len(wait.among)}"
    return f"{since}for {what}{count}"


def _order(waits: WaitColumns, rows: _Rows, verdict: Verdict) -> list[int]:
    """The parties in order of importance, then breadth first along the waits.

    With a core, only the witness, the core, the parties behind it from near to far, and those that they wait for. Without a
    core, all parties, beginning with those that could run, one that waits for each of these, and the parties that wait for
    these.
    """
    position = {name: at for at, name in enumerate(waits.names)}
    begins = [position[name] for name in (*verdict.witness.parties, *verdict.core) if name in position]
    behind = [position[name] for name in verdict.behind if name in position]
    known = dict.fromkeys((*begins, *_inward(waits, begins, behind), *behind))
    if verdict.core:
        return list(dict.fromkeys((*known, *_outward(waits, rows, known))))
    rest = dict.fromkeys(waits.waiter.tolist())
    if verdict.holds is Holds.FALSE:
        known |= dict.fromkeys((*_first_waiters(waits, begins), *_inward(waits, begins, list(rest))))
    return list(dict.fromkeys((*known, *_outward(waits, rows, known or rest), *rest, *range(len(waits.names)))))


def _first_waiters(waits: WaitColumns, begins: Sequence[int]) -> list[int]:
    """For each of ``begins`` the first party that waits for it."""
    waiter = np.repeat(waits.waiter, waits.sizes())
    return [party for begin in begins for party in waiter[waits.targets == begin][:1].tolist()]


def _inward(waits: WaitColumns, begins: Sequence[int], behind: Sequence[int]) -> list[int]:
    """The parties of ``behind`` that wait for ``begins``, then those that wait for these, and so on, as far as shown."""
    left, reached = np.zeros((2, len(waits.names)), np.bool_)
    left[list(behind)] = True
    reached[list(begins)] = True
    waiter = np.repeat(waits.waiter, waits.sizes())
    found: list[int] = []
    for _ in range(INWARD_STEPS_MAX):
        near = np.unique(waiter[reached[waits.targets] & left[waiter]])
        if not len(near) or len(found) >= OUTWARD_PARTIES_MAX:
            break
        left[near], reached[near] = False, True
        found += near.tolist()
    return found


def _outward(waits: WaitColumns, rows: _Rows, begins: Iterable[int]) -> list[int]:
    """The parties in breadth-first order along the waits from ``begins``, as far as a picture shows."""
    found = dict.fromkeys(begins)
    todo = deque(found)
    while todo and len(found) < OUTWARD_PARTIES_MAX:
        for at in rows.at(todo.popleft()):
            for target in waits.targets_of(at).tolist():
                if target not in found:
                    found[target] = None
                    todo.append(target)
    return list(found)


def _role(
    party: PartyName, snapshot: Snapshot, core: frozenset[PartyName], behind: frozenset[PartyName], *, waiting: bool
) -> Role:
    if process_of(party) in snapshot.missing:
        return Role.MISSING
    if party in core:
        return Role.CORE
    if party in behind:
        return Role.BEHIND
    return Role.WAITING if waiting else Role.FREE


def _left_out(verdict: Verdict, shown: Mapping[PartyName, Box], total: int) -> str:
    """The number of parties that the picture omits, in words; empty if it shows all."""
    core = sum(party not in shown for party in verdict.core)
    behind = sum(party not in shown for party in verdict.behind)
    own = frozenset((*verdict.core, *verdict.behind))
    elsewhere = sum(party not in shown and party not in own for party in verdict.remainder)
    rest = total - len(shown) - core - behind - elsewhere
    parts = [f"{core} more in the core"] * bool(core) + [f"{behind} more behind it"] * bool(behind)
    parts += [f"{elsewhere} in other deadlocks"] * bool(elsewhere)
    parts += [f"{rest} more not deadlocked"] * (rest > 0)
    return f"not shown: {', '.join(parts)}" if parts else ""
