"""A scope's view of a snapshot: the processes that bear its labels, and nobody else's waits.

A party outside counts as able to move, and a process outside that is named by one inside as active: what is TRUE of the scope is true
whatever the others do. A message from inside to outside is no longer the scope's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from detector.core.snapshot import Snapshot
from detector.graph.columns import WaitColumns
from detector.service.settings import Scope
from stilltrue.model import ProcessName, process_of

Labels = Mapping[str, str]


def scoped(snapshot: Snapshot, scope: Scope, labels_of: Mapping[ProcessName, Labels]) -> Snapshot:
    """``snapshot`` as ``scope`` sees it; ``labels_of`` has the labels of the missing, as far as they are known.

    A missing process of unknown labels belongs to every scope: doubt delays a verdict, never makes one.
    """
    processes = {name: state for name, state in snapshot.processes.items() if scope.holds(state.labels)}
    missing = tuple(name for name in snapshot.missing if name not in labels_of or scope.holds(labels_of[name]))
    inside = frozenset(processes) | frozenset(missing)
    outside = frozenset(snapshot.processes) | frozenset(snapshot.missing) - inside
    return replace(
        snapshot,
        ref=replace(snapshot.ref, scope=scope.name, members=len(inside)),
        processes=processes,
        waits=_of(snapshot.waits, inside),
        in_transit=tuple(
            message
            for message in snapshot.in_transit
            if message.target in inside or (message.source in inside and message.target not in outside)
        ),
        missing=missing,
        previous=None if snapshot.previous is None else _of(snapshot.previous, inside),
    )


def _of(waits: WaitColumns, inside: frozenset[ProcessName]) -> WaitColumns:
    return WaitColumns.of(wait for wait in waits.waits() if process_of(wait.waiter) in inside)
