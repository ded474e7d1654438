"""Finds the parties that aborting others would free, by continuing a snapshot's reduction with these free."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from detector.core.snapshot import Snapshot
from detector.core.waits.channels import FOR_WORKER
from detector.predicates.deadlock import stuck_bounds
from stilltrue.model import PartyName


def freed_by(snapshot: Snapshot, victims: Collection[PartyName]) -> tuple[PartyName, ...]:
    """The stuck parties of a snapshot that aborting ``victims`` frees, without the victims themselves."""
    waits = snapshot.waits
    before = stuck_bounds(snapshot).certain
    released = np.fromiter((name in victims for name in waits.names), np.bool_, len(waits.names))
    after = before.further(released=released)
    return tuple(name for name in waits.named(np.flatnonzero(after.free & ~before.free)) if name not in victims)


def queued_among(snapshot: Snapshot, parties: Collection[PartyName]) -> int:
    """The number of ``parties`` that wait for a worker of a full pool."""
    waits = snapshot.waits
    waiting = {
        waits.names[waiter] for waiter, what in zip(waits.waiter.tolist(), waits.what, strict=False) if FOR_WORKER in what
    }
    return len(waiting.intersection(parties))
