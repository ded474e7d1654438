"""Findings beyond the verdict: a deadlock's separate cores with their ids, and near misses.

A *near miss* is a snapshot without a deadlock that one more wait would have turned into one: had one party that waits for
nothing (``saved_by``) been stuck, others would wait for each other in a cycle forever.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from detector.analysis.disjoint_union import DisjointUnion
from detector.archive.rows.local_state_rows import Row
from detector.archive.rows.row_decoder import waits_of
from detector.core.incident_identity import cores_of, incident_id
from detector.graph.columns import Bools, Ints, WaitColumns
from detector.graph.matrix import strong_components
from detector.graph.reduction import reduce
from stilltrue.model import PartyName

FINDINGS = pa.list_(
    pa.struct(
        [
            ("kind", pa.string()),
            ("id", pa.string()),
            ("parties", pa.list_(pa.string())),
            ("formed", pa.float64()),
            ("saved_by", pa.string()),
            ("keys", pa.list_(pa.string())),
        ]
    )
)
SAVERS_MAX = 32
"""Most parties tried for one cycle of waits."""


def cores(predicate: str, core: Sequence[PartyName], row: Mapping[str, Any]) -> list[Row]:
    """Return the separate cores of a verdict's ``core`` as findings, each with its incident's id.

    ``row`` is the snapshot's row of ``snapshots``; a finding's ``keys`` are the waits that identify the incident.
    """
    waits = waits_of(row["waits"])
    incarnations = row["waits"]["incarnation"] or [0] * len(waits)
    return [
        {
            "kind": "core",
            "id": incident_id(predicate, each.keys),
            "parties": list(each.parties),
            "formed": each.formed,
            "keys": [json.dumps(key) for key in each.keys],
        }
        for each in cores_of(core, waits, incarnations.__getitem__)
    ]


def near_misses(together: DisjointUnion, among: Bools) -> dict[int, list[Row]]:
    """Return the near misses of the snapshots marked in ``among`` (S,), by their index in the union."""
    columns = together.columns
    lasting = ~columns.passing(together.missing)
    parties = len(together.missing)
    labels = strong_components(columns, np.arange(parties), parties, lasting)
    cycles = np.flatnonzero(np.bincount(labels, minlength=1)[labels] > 1) if parties else np.empty(0, np.int64)
    places = np.searchsorted(together.parties, cycles, side="right") - 1
    found: dict[int, list[Row]] = {}
    for at in np.unique(places[among[places]]).tolist():
        first = int(together.parties[at])
        own = cycles[places == at]
        rows = list(_near(together.part(at), own - first, labels[own], together.missing[first : int(together.parties[at + 1])]))
        if rows:
            found[at] = rows
    return found


def _near(waits: WaitColumns, cycles: Ints, labels: Ints, missing: Bools) -> Iterator[Row]:
    """Yield at most one near miss for each cycle of one snapshot, with the first party found that keeps it open."""
    ended = waits.passing(missing)
    waiting = np.zeros(len(missing), np.bool_)
    waiting[waits.waiter[~ended]] = True
    rows = np.repeat(np.arange(len(waits)), waits.sizes())
    listed: set[int] = set()
    for label in np.unique(labels).tolist():
        members = cycles[labels == label]
        if listed.intersection(members.tolist()):
            continue
        targets = np.unique(waits.targets[np.isin(waits.waiter[rows], members) & ~ended[rows]])
        savers = targets[~waiting[targets] & ~missing[targets]][:SAVERS_MAX]
        for saver in savers.tolist():
            core = _core_without(waits, ended, saver)
            if len(core):
                listed.update(core.tolist())
                names = list(waits.named(core))
                yield {"kind": "near miss", "id": None, "parties": names, "saved_by": waits.names[saver], "keys": []}
                break


def _core_without(waits: WaitColumns, ended: Bools, saver: int) -> Ints:
    """Return the core that there would be if ``saver`` were stuck."""
    held = np.zeros(len(waits.names), np.bool_)
    held[saver] = True
    reduction = reduce(waits, ended=ended, held=held)
    stuck = ~reduction.free & ~held
    place = np.where(stuck, np.cumsum(stuck) - 1, -1)
    labels = strong_components(waits, place, int(stuck.sum()), ~ended)
    on_cycle = np.bincount(labels, minlength=1)[labels] > 1 if len(labels) else np.empty(0, np.bool_)
    core: Ints = np.flatnonzero(stuck)[on_cycle]
    return core
