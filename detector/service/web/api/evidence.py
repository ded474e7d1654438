"""Who waits in an incident, for what, where in the code, and whom to abort: as of the newest snapshot while it is open."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from detector.core.times import write_time
from detector.service.detection.incident.incidents import Incident
from detector.service.detection.incident.standing_waits import first_told, newest_of, now_waiting
from stilltrue.model import Verdict


def evidence_of(incident: Incident, verdicts: Collection[Verdict]) -> dict[str, Any]:
    """Of an open incident by the newest verdict, whose waits go on; else (``current`` false) as they were first seen."""
    verdict = newest_of(incident, verdicts)
    if verdict is None:
        told, places = _apart(incident)
        return {"current": False, "at": None, "waits": told, "victims": [], "places": places, "assumptions": []}
    stuck = {*incident.core, *incident.behind}
    ended = verdict.snapshot.ended
    waits = now_waiting(incident, (verdict,))
    return {
        "current": True,
        "at": None if ended is None or not waits else write_time(ended),
        "waits": list(waits or incident.waits),
        "victims": [victim for victim in verdict.victims if victim in stuck],
        "places": [
            {"party": one.party, "stack": list(one.stack), "trace": one.trace}
            for one in verdict.evidence
            if one.party in stuck and (one.stack or one.trace)
        ],
        "assumptions": list(verdict.assumptions),
    }


def _apart(incident: Incident) -> tuple[list[str], list[dict[str, Any]]]:
    """What is told of an incident, and apart from it where its parties stood in the code."""
    told, places = [], []
    for sentence in first_told(incident):
        party, found, place = sentence.partition(" is at ")
        if found and party in incident.core:
            places.append({"party": party, "stack": [place], "trace": ""})
        else:
            told.append(sentence)
    return told, places
