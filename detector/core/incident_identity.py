"""Decides when two deadlocks are the same incident: splits a verdict's core into components and derives an id for each.

Rules:

1. Each strongly connected component of a verdict's core is a core of its own.
2. A core is identified by its waits (the party, its process's incarnation, the wait's number). Its id is a digest of them, so
   it does not depend on their order, and is the same after a restart and in the analysis of an archive.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from detector.graph.columns import WaitColumns
from detector.graph.matrix import strong_components
from stilltrue.model import PartyName

WaitKey = tuple[str, int, int]
"""Identifies a wait globally: the party, its process's incarnation, the wait's number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """One strongly connected component of a verdict's core, with its waits.

    ``formed``: when its last wait began, in seconds; None if unknown. ``lasting``: none of its waits has a deadline.
    """

    parties: tuple[PartyName, ...]
    keys: tuple[WaitKey, ...]
    formed: float | None
    lasting: bool


def cores_of(core: Sequence[PartyName], waits: WaitColumns, incarnation: Callable[[int], int]) -> list[Core]:
    """The strongly connected components of a verdict's ``core`` (rule 1), sorted by their parties.

    ``waits`` are the snapshot's. ``incarnation`` maps a wait's index to the incarnation of its waiter's process.
    """
    position = {name: at for at, name in enumerate(core)}
    inside = np.fromiter((position.get(name, -1) for name in waits.names), np.int64, len(waits.names))
    labels = strong_components(waits, inside, len(core)).tolist()
    parts: dict[int, list[int]] = {}
    for at, label in enumerate(labels):
        parts.setdefault(label, []).append(at)
    own: dict[int, list[int]] = {}
    for wait in np.flatnonzero(inside[waits.waiter] >= 0).tolist():
        own.setdefault(labels[inside[waits.waiter[wait]]], []).append(wait)
    return sorted(
        (_core([core[at] for at in parts[label]], own.get(label, []), waits, incarnation) for label in parts),
        key=lambda each: each.parties,
    )


def incident_id(predicate: str, keys: Sequence[WaitKey]) -> str:
    """The id of the incident whose core has these waits (rule 2)."""
    key = json.dumps([predicate, sorted(keys)], separators=(",", ":"))
    return "i-" + hashlib.blake2s(key.encode(), digest_size=5).hexdigest()


def _core(parties: Sequence[PartyName], own: Sequence[int], waits: WaitColumns, incarnation: Callable[[int], int]) -> Core:
    since = [float(waits.since[wait]) for wait in own if not np.isnan(waits.since[wait])]
    return Core(
        parties=tuple(parties),
        keys=tuple(sorted({(waits.names[waits.waiter[at]], incarnation(at), max(0, int(waits.number[at]))) for at in own})),
        formed=max(since, default=None),
        lasting=bool(np.isnan(waits.deadline[list(own)]).all()),
    )


def detection_seconds(formed: float | None, opened: float) -> float | None:
    """Seconds from the start of a core's last wait to the end of the first snapshot that showed it; None if unknown."""
    return None if formed is None else max(0.0, opened - formed)
