"""Describes open incidents as of the newest verdict, so that the ages of their waits are current."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Set

from detector.core.times import age_in, aged
from detector.predicates.evidence.explanation import listed
from detector.predicates.evidence.suggestion import is_suggestion
from detector.service.detection.incident.incidents import Incident
from stilltrue.model import PartyName, Verdict


def current_verdict_of(incident: Incident, verdicts: Iterable[Verdict]) -> Verdict | None:
    """The current verdict that shows an open incident; None for a closed one, or if no verdict shows it."""
    for verdict in verdicts if incident.open else ():
        if (verdict.predicate, verdict.snapshot.scope) == (incident.predicate, "all") and set(incident.core) <= set(
            verdict.core
        ):
            return verdict
    return None


def current_waits(incident: Incident, verdicts: Iterable[Verdict]) -> tuple[str, ...]:
    """The sentences about its waits as they are now; empty if that is unknown."""
    verdict = current_verdict_of(incident, verdicts)
    if verdict is None:
        return ()
    sentences = tuple(filter(is_wait_of({*incident.core, *incident.behind}), verdict.explanation))
    return sentences or _aged(incident, verdict.snapshot.ended)


def current_explanation(incident: Incident, verdicts: Iterable[Verdict]) -> tuple[str, ...]:
    """As :func:`current_waits`, with the suggested victims and the lines of code; empty if the waits are unknown."""
    verdicts = tuple(verdicts)
    verdict, waits = current_verdict_of(incident, verdicts), current_waits(incident, verdicts)
    if verdict is None or not waits:
        return ()
    is_wait = is_wait_of({*incident.core, *incident.behind})
    sole = len(verdict.core) == len(incident.core)
    victims = [party for party in verdict.victims if party in {*incident.core, *incident.behind}]
    if sole:
        rest = [sentence for sentence in verdict.explanation if not is_wait(sentence)]
    else:
        rest = [f"suggested victims: {listed(victims)}"] if victims else []
    return (*filter(is_wait, waits), *rest)


def first_explanation(incident: Incident) -> tuple[str, ...]:
    """The sentences from when it was first seen, without suggested victims, which may be out of date."""
    return tuple(sentence for sentence in incident.waits if not is_suggestion(sentence))


def _aged(incident: Incident, now: float | None) -> tuple[str, ...]:
    """The first reported sentences with current ages: a verdict explains one of several cores, but the other waits go on, too.

    The incident formed when the last wait of its core began, which dates the sentences.
    """
    ages = [found[1] for found in map(age_in, incident.waits) if found is not None]
    if now is None or incident.formed is None or not ages:
        return ()
    later = max(0.0, now - incident.formed - min(ages))
    return tuple(aged(sentence, later) for sentence in incident.waits)


def is_wait_of(stuck: Set[PartyName]) -> Callable[[str], bool]:
    """A filter for the sentences about waits of these parties, not about other parties or lines of code."""

    def is_one(sentence: str) -> bool:
        party = re.split(" has waited | waits for ", sentence, maxsplit=1)[0]
        return party in stuck and party != sentence

    return is_one
