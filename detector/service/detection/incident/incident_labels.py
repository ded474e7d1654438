"""Names the core of each open incident, for the person paged: by its services, in a metric with few series.

A label must not hold ids: parties, processes (pods) and incidents differ every time, and each would leave a series behind
forever. Operators named the services, so there are few, and the architecture decides which of them can deadlock together.
So the label is the set of services in the core, and the series exists only while an incident is open.

Rules:

1. The label names services only: a process of unknown service is not named.
2. At most ``NAMED_MAX`` services are named, and at most ``SERIES_MAX`` sets at a time; the rest is given as a number.
3. Two incidents between the same services are one series.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from detector.service.detection.incident.incidents import Incident
from detector.service.metrics import Metrics
from stilltrue.model import ProcessName, process_of

NAMED_MAX = 6
SERIES_MAX = 20
BEYOND = "more than can be named"

ServiceOf = Callable[[ProcessName], str | None]


class IncidentLabels:
    """The services in the core of each open incident."""

    def __init__(self, metrics: Metrics, service_of: ServiceOf) -> None:
        """``service_of``: a process's service; None if it is not (or no longer) a member."""
        self._metrics = metrics
        self._service_of = service_of
        self._services: dict[tuple[str, str], frozenset[str]] = {}
        self._sets: dict[str, Counter[frozenset[str]]] = {}
        """By predicate, how many open incidents each set of services has."""
        self._shown: dict[str, tuple[str, ...]] = {}

    def changed(self, incident: Incident) -> None:
        """An incident began, was seen again, or ended."""
        at = incident.predicate, incident.id
        before, after = self._services.get(at), None
        if incident.open:
            found = {self._service_of(process_of(party)) for party in incident.core}
            known = frozenset(service for service in found if service)
            after = self._services[at] = known | (before or frozenset() if None in found else frozenset())
        else:
            self._services.pop(at, None)
        if after == before:
            return
        sets = self._sets.setdefault(incident.predicate, Counter())
        sets.update([] if after is None else [after])
        sets.subtract([] if before is None else [before])
        self._sets[incident.predicate] = +sets
        self._show(incident.predicate)

    def _show(self, predicate: str) -> None:
        labels = sorted({_label(services) for services in self._sets[predicate]})
        shown = tuple(labels if len(labels) <= SERIES_MAX else [*labels[: SERIES_MAX - 1], BEYOND])
        if shown != self._shown.get(predicate, ()):
            self._shown[predicate] = shown
            self._metrics.cores(predicate, shown)


def _label(services: frozenset[str]) -> str:
    """Rule 2: ``billing, orders, stock``."""
    named = sorted(services)[:NAMED_MAX]
    more = len(services) - len(named)
    return (", ".join(named) or "unknown services") + (f" and {more} more" if more else "")
