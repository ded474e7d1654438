"""The evidence of an incident: waits, lines of code and suggested victims; as of the newest snapshot while it is open."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from detector.core.times import write_time
from detector.service.detection.incident.explanation import current_verdict_of, current_waits, first_explanation
from detector.service.detection.incident.incidents import Incident
from stilltrue.model import Verdict


def evidence_of(incident: Incident, verdicts: Collection[Verdict]) -> dict[str, Any]:
    """The evidence from the current verdict, if it shows the incident; else (``current`` false) as first seen."""
    verdict = current_verdict_of(incident, verdicts)
    if verdict is None:
        waits, places = _first_seen(incident)
        return {"current": False, "at": None, "waits": waits, "victims": [], "places": places, "assumptions": []}
    stuck = {*incident.core, *incident.behind}
    ended = verdict.snapshot.ended
    current = current_waits(incident, (verdict,))
    return {
        "current": True,
        "at": None if ended is None or not current else write_time(ended),
        "waits": list(current or incident.waits),
        "victims": [victim for victim in verdict.victims if victim in stuck],
        "places": [
            {"party": one.party, "stack": list(one.stack), "trace": one.trace}
            for one in verdict.evidence
            if one.party in stuck and (one.stack or one.trace)
        ],
        "assumptions": list(verdict.assumptions),
    }


def _first_seen(incident: Incident) -> tuple[list[str], list[dict[str, Any]]]:
    """The sentences from when an incident was first seen, and separately its parties' lines of code."""
    waits, places = [], []
    for sentence in first_explanation(incident):
        party, found, place = sentence.partition(" is at ")
        if found and party in incident.core:
            places.append({"party": party, "stack": [place], "trace": ""})
        else:
            waits.append(sentence)
    return waits, places
