"""Who waits in an incident, for what, where in the code, and whom to abort: as of the newest snapshot while it is open."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from detector.core.times import write_time
from detector.service.detection.incident.incidents import Incident
from detector.service.detection.incident.standing_waits import newest_of, now_waiting
from stilltrue.model import Verdict


def evidence_of(incident: Incident, verdicts: Collection[Verdict]) -> dict[str, Any]:
    """Of an open incident by the newest verdict, whose waits go on; else (``current`` false) as they were first seen."""
    verdict = newest_of(incident, verdicts)
    if verdict is None:
        return {"current": False, "at": None, "waits": list(incident.waits), "victims": [], "places": [], "assumptions": []}
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
