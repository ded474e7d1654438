"""The waits of an open incident as of the newest verdict, so that their ages grow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set

from detector.service.detection.incident.incidents import Incident
from stilltrue.model import PartyName, Verdict


def newest_of(incident: Incident, verdicts: Iterable[Verdict]) -> Verdict | None:
    """The newest verdict that shows an open incident; None for one that has ended, or that no current verdict shows."""
    for verdict in verdicts if incident.open else ():
        if (verdict.predicate, verdict.snapshot.scope) == (incident.predicate, "all") and set(incident.core) <= set(
            verdict.core
        ):
            return verdict
    return None


def now_waiting(incident: Incident, verdicts: Iterable[Verdict]) -> tuple[str, ...]:
    """The sentences about its waits as they stand now; none when that is not known."""
    verdict = newest_of(incident, verdicts)
    return () if verdict is None else tuple(filter(is_wait_of({*incident.core, *incident.behind}), verdict.explanation))


def is_wait_of(stuck: Set[PartyName]) -> Callable[[str], bool]:
    """Distinguishes the sentences about waits of these parties from those about others, and about where they are."""

    def is_one(sentence: str) -> bool:
        party, _, rest = sentence.partition(" ")
        return party in stuck and not rest.startswith(("stands at", "is at"))

    return is_one
