"""The wait-for graph of a stored snapshot as JSON, for the interactive drawing.

Parties of one process with equal waits share one node, so that a thousand callers behind a pool become one.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from detector.core.document.reader import parse_document
from detector.core.snapshot import Snapshot
from detector.core.times import write_time
from detector.drawing.scene import Box, scene_of
from detector.predicates.evidence.core_components import narrowed
from detector.service.web.api.picture import verdict_to_show
from stilltrue.model import Evidence, PartyName, process_of
from stilltrue.protocol.wire.verdict import verdict_from_wire
from stilltrue.v1 import detector_pb2 as pb

NODES_MAX = 2_000
"""Maximum number of nodes; larger graphs are cut to the nodes nearest to the core, and ``left_out`` counts the others."""
PARTIES_LISTED_MAX = 50
"""Maximum number of names listed with a node for many parties."""


def graph_of(answer: pb.GetSnapshotResponse, predicate: str = "", core: Collection[PartyName] = ()) -> dict[str, Any]:
    """The graph of the snapshot ``answer``, marked by the verdict of ``predicate`` (empty: any).

    ``core``: the parties of one incident, to which the graph is limited if the verdict shows it; empty: all.

    Slow for a large snapshot: do not call it on the event loop.
    """
    _, snapshot = parse_document(answer.document_json, file=f"snapshot {answer.summary.ref.id}")
    verdict = verdict_to_show([verdict_from_wire(each) for each in answer.verdicts], predicate)
    if verdict is None:
        return {"snapshot": answer.summary.ref.id, "predicate": predicate, "nodes": [], "edges": [], "left_out": ""}
    verdict = narrowed(verdict, snapshot, core)
    scene = scene_of(snapshot, verdict, NODES_MAX)
    since = _since(snapshot)
    evidence = {each.party: each for each in reversed(verdict.evidence)}
    return {
        "snapshot": answer.summary.ref.id,
        "ended": None if snapshot.ref.ended is None else write_time(snapshot.ref.ended),
        "predicate": verdict.predicate,
        "title": scene.title,
        "subtitle": scene.subtitle,
        "left_out": scene.left_out,
        "nodes": [_node(box, snapshot, evidence, since) for box in scene.boxes],
        "edges": [
            {"source": arrow.waiter, "target": arrow.target, "core": arrow.core, "label": arrow.label} for arrow in scene.arrows
        ],
    }


def _node(box: Box, snapshot: Snapshot, seen: dict[PartyName, Evidence], since: dict[PartyName, float]) -> dict[str, Any]:
    process = process_of(box.parties[0])
    state = snapshot.processes.get(process)
    evidence = next((seen[party] for party in box.parties if party in seen), None)
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


def _since(snapshot: Snapshot) -> dict[PartyName, float]:
    """When each party began to wait, if known."""
    waits, found = snapshot.waits, dict[PartyName, float]()
    for waiter, since in zip(waits.named(waits.waiter), waits.since.tolist(), strict=True):
        if not math.isnan(since):
            found[waiter] = min(since, found.get(waiter, since))
    return found
