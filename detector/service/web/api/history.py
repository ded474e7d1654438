"""Finds earlier incidents of the same kind: the same methods and locks, regardless of instances and call numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from detector.service.detection.incident.incidents import Incident
from stilltrue.model import PartyName, process_of

WEEK_SECONDS = 7 * 86400.0
_ORDINALS = ("second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_NUMBER = re.compile(r"#?\d+$")
_METHOD = re.compile(r" (?:for the reply .*?to|for a worker for) (/[^\s:]+/[^\s:]+)")


def kind_of(incident: Incident) -> tuple[str, ...]:
    """The core's parties without instances and numbers, such as ``("Place", "Reserve")``, since pod names change."""
    return _kind(incident.core)


@lru_cache(maxsize=256)
def _kind(core: tuple[PartyName, ...]) -> tuple[str, ...]:
    """Cached, since each page update needs it, and thousands of parties take milliseconds."""
    return tuple(sorted({_NUMBER.sub("", party[len(process_of(party)) + 1 :]) for party in core}))


def _of_other_services(one: Incident, other: Incident) -> bool:
    """Whether no party of ``one`` waits for a method that a party of ``other`` waits for, although both wait for some."""
    mine, theirs = _methods(one.waits), _methods(other.waits)
    return bool(mine) and bool(theirs) and mine.isdisjoint(theirs)


@lru_cache(maxsize=256)
def _methods(waits: tuple[str, ...]) -> frozenset[str]:
    """The full methods, such as ``/shop.Stock/Reserve``, that the sentences about an incident's waits name."""
    return frozenset(method for sentence in waits for method in _METHOD.findall(sentence))


def seen_before(incident: Incident, known: Iterable[Incident]) -> list[Incident]:
    """Incidents of the same kind in the week before, the newest first."""
    kind, begun = kind_of(incident), _begun(incident)
    alike = (
        each
        for each in known
        if (each.predicate, each.scope) == (incident.predicate, incident.scope)
        and begun - WEEK_SECONDS <= _begun(each) < begun
        and kind_of(each) == kind
        and not _of_other_services(incident, each)
    )
    return sorted(alike, key=lambda each: (-_begun(each), each.id))


def week_before(incident: Incident) -> float:
    """The earliest time of incidents that count as seen before."""
    return _begun(incident) - WEEK_SECONDS


def recurrence(before: list[Incident]) -> str:
    """Words such as ``"third time within a week"``; empty for the first time."""
    if not before:
        return ""
    times = len(before) + 1
    return f"{_ORDINALS[times - 2]} time within a week" if times - 2 < len(_ORDINALS) else f"{times} times within a week"


def _begun(incident: Incident) -> float:
    return incident.opened if incident.formed is None else incident.formed
