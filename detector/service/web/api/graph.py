"""The wait-for graph of a stored snapshot as JSON, for the page's interactive drawing.

Parties of one process with equal waits are one node, so that a thousand callers behind one pool are one thing to look at.
"""

from __future__ import annotations

from typing import Any

from detector.core.document.reader import parse_document
from detector.core.snapshot import Snapshot
from detector.core.times import write_time
from detector.drawing.scene import Box, scene_of
from detector.service.web.api.picture import shown
from stilltrue.model import Evidence, PartyName, Verdict, process_of
from stilltrue.protocol.wire.verdict import verdict_from_wire
from stilltrue.v1 import detector_pb2 as pb

NODES_MAX = 2_000
"""Nodes in one graph; of a larger one, those nearest to the core, and ``left_out`` counts the others."""
PARTIES_LISTED_MAX = 50
"""Names listed with a node that stands for many."""


def graph_of(answer: pb.GetSnapshotResponse, predicate: str = "") -> dict[str, Any]:
    """The nodes of the snapshot ``answer`` and the waits between them, marked by ``predicate``'s verdict (empty: any).

    Slow for a large snapshot: do not call it on the event loop.
    """
    _, snapshot = parse_document(answer.document_json, file=f"snapshot {answer.summary.ref.id}")
    verdict = shown([verdict_from_wire(each) for each in answer.verdicts], predicate)
    if verdict is None:
        return {"snapshot": answer.summary.ref.id, "predicate": predicate, "nodes": [], "edges": [], "left_out": ""}
    scene = scene_of(snapshot, verdict, NODES_MAX)
    since = _since(snapshot)
    return {
        "snapshot": answer.summary.ref.id,
        "ended": None if snapshot.ref.ended is None else write_time(snapshot.ref.ended),
        "predicate": verdict.predicate,
        "title": scene.title,
        "subtitle": scene.subtitle,
        "left_out": scene.left_out,
        "nodes": [_node(box, snapshot, verdict, since) for box in scene.boxes],
        "edges": [
            {"source": arrow.waiter, "target": arrow.target, "core": arrow.core, "label": arrow.label} for arrow in scene.arrows
        ],
    }


def _node(box: Box, snapshot: Snapshot, verdict: Verdict, since: dict[PartyName, float]) -> dict[str, Any]:
    process = process_of(box.parties[0])
    state = snapshot.processes.get(process)
    evidence = _evidence(box, verdict)
    begun = [since[party] for party in box.parties if party in since]
    return {
        "id": box.name,
        "process": process,
        "service": state.service if state is not None and state.service else process,
        "parties": list(box.parties[:PARTIES_LISTED_MAX]),
        "count": len(box.parties),
        "role": box.role.value,
        "victim": box.victim,
        "since": write_time(min(begun)) if begun else None,
        "waits": list(box.waits),
        "stack": [] if evidence is None else list(evidence.stack),
        "trace": "" if evidence is None else evidence.trace,
    }


def _evidence(box: Box, verdict: Verdict) -> Evidence | None:
    parties = frozenset(box.parties)
    return next((each for each in verdict.evidence if each.party in parties), None)


def _since(snapshot: Snapshot) -> dict[PartyName, float]:
    """Since when each party has waited, where it is known."""
    found: dict[PartyName, float] = {}
    for wait in snapshot.waits.waits():
        if wait.since is not None:
            found[wait.waiter] = min(wait.since, found.get(wait.waiter, wait.since))
    return found
