"""What is said of an open incident as of the newest verdict, so that the ages of its waits grow."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Set

from detector.core.times import age_in, aged
from detector.predicates.evidence.explain import shortened
from detector.predicates.evidence.suggestion import is_suggestion
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
    if verdict is None:
        return ()
    told = tuple(filter(is_wait_of({*incident.core, *incident.behind}), verdict.explanation))
    return told or _grown(incident, verdict.snapshot.ended)


def now_told(incident: Incident, verdicts: Iterable[Verdict]) -> tuple[str, ...]:
    """As :func:`now_waiting`, and whom to abort, and where each of them is; none when it is not known how they stand now."""
    verdicts = tuple(verdicts)
    verdict, waits = newest_of(incident, verdicts), now_waiting(incident, verdicts)
    if verdict is None or not waits:
        return ()
    is_wait = is_wait_of({*incident.core, *incident.behind})
    sole = len(verdict.core) == len(incident.core)
    victims = [party for party in verdict.victims if party in {*incident.core, *incident.behind}]
    if sole:
        rest = [sentence for sentence in verdict.explanation if not is_wait(sentence)]
    else:
        rest = [f"suggested victims: {', '.join(shortened(victims))}"] if victims else []
    return (*filter(is_wait, waits), *rest)


def first_told(incident: Incident) -> tuple[str, ...]:
    """The sentences about it when it was first seen, without whom to abort: that may free nobody any more."""
    return tuple(sentence for sentence in incident.waits if not is_suggestion(sentence))


def _grown(incident: Incident, now: float | None) -> tuple[str, ...]:
    """As they were first told, and older: a verdict explains one core of several, and the waits of the others go on as well.

    The incident formed when the last of its core's waits began, which gives the moment of which they were told.
    """
    ages = [told[1] for told in map(age_in, incident.waits) if told is not None]
    if now is None or incident.formed is None or not ages:
        return ()
    later = max(0.0, now - incident.formed - min(ages))
    return tuple(aged(sentence, later) for sentence in incident.waits)


def is_wait_of(stuck: Set[PartyName]) -> Callable[[str], bool]:
    """Distinguishes the sentences about waits of these parties from those about others, and about where they are."""

    def is_one(sentence: str) -> bool:
        party = re.split(" has waited | waits for ", sentence, maxsplit=1)[0]
        return party in stuck and party != sentence

    return is_one
