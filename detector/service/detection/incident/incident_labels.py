"""Labels the core of each open incident with its services, in a metric with few series, for the person on call.

A label must not hold ids: parties, processes (pods) and incidents are always new, and each would leave a series behind
forever. Services are few, and the architecture limits which of them can deadlock together. So the label is the set of
services in the core, and its series exists only while an incident is open.

Rules:

1. The label names only services; processes of unknown service are left out.
2. At most ``NAMED_MAX`` services are named and the rest counted, in at most ``SERIES_MAX`` series at a time.
3. Incidents between the same services share one series.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from detector.service.detection.incident.incidents import Incident
from detector.service.metrics import Metrics
from stilltrue.model import ProcessName, process_of

NAMED_MAX = 6
SERIES_MAX = 20
OTHERS = "more than can be named"

ServiceOf = Callable[[ProcessName], str | None]


class IncidentLabels:
    """Maintains the labels of the open incidents' cores."""

    def __init__(self, metrics: Metrics, service_of: ServiceOf) -> None:
        """``service_of``: returns a process's service; None if it is not a member (any more)."""
        self._metrics = metrics
        self._service_of = service_of
        self._services: dict[tuple[str, str], frozenset[str]] = {}
        self._sets: dict[str, Counter[frozenset[str]]] = {}
        """By predicate, the number of open incidents with each set of services."""
        self._shown: dict[str, tuple[str, ...]] = {}

    def changed(self, incident: Incident) -> None:
        """Take an incident that began, was seen again, or ended."""
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
        shown = tuple(labels if len(labels) <= SERIES_MAX else [*labels[: SERIES_MAX - 1], OTHERS])
        if shown != self._shown.get(predicate, ()):
            self._shown[predicate] = shown
            self._metrics.cores(predicate, shown)


def _label(services: frozenset[str]) -> str:
    """Format a label (rule 2), such as ``billing, orders, stock``."""
    named = sorted(services)[:NAMED_MAX]
    more = len(services) - len(named)
    return (", ".join(named) or "unknown services") + (f" and {more} more" if more else "")
