"""Draws past incidents: each one's last wait-for graph, with its core, victims and waits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from detector.analysis.findings.incidents import PastIncident
from detector.archive.offsets import Wanted
from detector.archive.rows.row_decoder import snapshot_of
from detector.archive.rows.schema import SNAPSHOTS
from detector.archive.units import Archive
from detector.core.predicate import Predicate
from detector.core.registry import PluginError, ask
from detector.drawing.draw import Format, draw
from detector.predicates.evidence.core_components import CoreComponents, narrowed
from stilltrue.model import PartyName


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentDrawing:
    """An incident in its last snapshot: an SVG document, and a sentence for each wait."""

    svg: str
    waits: tuple[str, ...]


def draw_incidents(archive: Archive, incidents: Iterable[PastIncident], deadlock: Predicate) -> dict[str, IncidentDrawing]:
    """Draw incidents, by id, as the predicate ``deadlock`` sees them; skip those whose snapshot cannot be read.

    Each unit of the archive is read once.
    """
    wanted: dict[tuple[str | None, int], list[PastIncident]] = defaultdict(list)
    for each in incidents:
        wanted[each.archive, each.last_snapshot].append(each)
    found: dict[str, IncidentDrawing] = {}
    for row in _rows(archive, sorted({snapshot for _, snapshot in wanted})):
        for each in wanted.get((row["archive"], row["snapshot"]), ()):
            found |= _draw(row, each, deadlock)
    return found


def _rows(archive: Archive, numbers: list[int]) -> Iterator[dict[str, Any]]:
    read = set()
    for number in numbers:
        for unit in archive.units("snapshots", Wanted(snapshot_min=number, snapshot_max=number)):
            if str(unit.source) not in read:
                read.add(str(unit.source))
                rows, _ = unit.read(archive.store, SNAPSHOTS)
                yield from rows.filter(pc.is_in(rows.column("snapshot"), pa.array(numbers))).to_pylist()


def _draw(row: dict[str, Any], incident: PastIncident, deadlock: Predicate) -> dict[str, IncidentDrawing]:
    snapshot = snapshot_of(row)
    try:
        verdict = ask(deadlock, snapshot)
    except PluginError:
        return {}
    own = frozenset(map(PartyName, incident.parties))
    core = tuple(party for party in verdict.core if party in own)
    if not core:
        return {}
    waits = CoreComponents(verdict, snapshot).of(core).waits
    if len(core) < len(verdict.core) and (victims := [party for party in verdict.victims if party in own]):
        waits = (*waits, f"suggested victims: {', '.join(victims)}")
    return {incident.id: IncidentDrawing(svg=draw(snapshot, narrowed(verdict, snapshot, own), Format.SVG), waits=waits)}
