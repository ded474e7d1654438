"""Snapshots restricted to scopes, named groups of processes selected by label."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from detector.core.selector import has_labels
from detector.core.snapshot import Snapshot, parties_of
from stilltrue.model import ProcessName, ProcessState


def scoped(snapshot: Snapshot, name: str, labels: Mapping[str, str]) -> Snapshot:
    """Restrict ``snapshot`` to the processes with ``labels``, under the scope's ``name``.

    Parties outside the scope are free: they can move. A message into the scope counts, a message out of it does not. The labels
    of a missing process are unknown, so it belongs to every scope: doubt delays a verdict, never makes one.
    """
    inside = frozenset(member for member, state in snapshot.processes.items() if has_labels(state, labels))
    return restricted(snapshot, name=name, members=inside | frozenset(snapshot.missing))


def views_of(
    snapshot: Snapshot, scopes: Mapping[str, Mapping[str, str]], absent: Mapping[ProcessName, ProcessState | None]
) -> list[Snapshot]:
    """The snapshot, followed by its view in each scope.

    ``absent``: the last known state of each missing member; one without a known state belongs to every scope.
    """
    states = dict(snapshot.processes) | {name: state for name, state in absent.items() if state is not None}
    unknown = {name for name in snapshot.missing if absent.get(name) is None}
    views = [snapshot]
    for name, labels in scopes.items():
        inside = frozenset(member for member, state in states.items() if has_labels(state, labels))
        views.append(restricted(snapshot, name=name, members=inside | unknown))
    return views


def restricted(snapshot: Snapshot, *, name: str, members: frozenset[ProcessName]) -> Snapshot:
    """Restrict ``snapshot`` to ``members``."""
    outside = (frozenset(snapshot.processes) | frozenset(snapshot.missing)) - members
    waits = snapshot.waits
    return replace(
        snapshot,
        ref=replace(snapshot.ref, scope=name, members=len(members)),
        processes={process: state for process, state in snapshot.processes.items() if process in members},
        waits=waits.only(parties_of(waits.names, members)[waits.waiter]),
        in_transit=tuple(
            message
            for message in snapshot.in_transit
            if message.target in members or (message.source in members and message.target not in outside)
        ),
        doubts={process: doubt for process, doubt in snapshot.doubts.items() if process in members},
        missing=tuple(process for process in snapshot.missing if process in members),
    )
