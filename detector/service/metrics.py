"""The metrics (names fixed in docs/design.md section 8): the one door to prometheus_client."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest

from detector.core.protocol.assembler import Assembled, Outcome
from detector.service.detection.membership.members import MemberState
from stilltrue.model import Holds, Verdict

CONTENT_TYPE = prometheus_client.CONTENT_TYPE_LATEST
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@lru_cache(maxsize=1)
def detector_version() -> str:
    """The version that is installed; "unknown" in a bare checkout. Every welcome names it: it is read from the disk once."""
    try:
        return version("stilltrue-detector")
    except PackageNotFoundError:
        return "unknown"


class Metrics:
    """The service's metrics, in a registry of their own. No ids in labels."""

    def __init__(self) -> None:
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        registry = self._registry = CollectorRegistry()
        self._count_members: Callable[[], Mapping[MemberState, int]] = dict
        self._count_unexplained: Callable[[], int] = int
        self._state = Gauge(
            "stilltrue_predicate_state",
            "The newest verdict: 1 for its state",
            ["predicate", "scope", "state"],
            registry=registry,
        )
        self._snapshots = Counter("stilltrue_snapshots_total", "Snapshots by how they ended", ["outcome"], registry=registry)
        self._duration = Histogram(
            "stilltrue_snapshot_duration_seconds", "From the markers to the last report", buckets=_SECONDS, registry=registry
        )
        self._verdict = Histogram(
            "stilltrue_verdict_duration_seconds",
            "From the markers to the verdict",
            ["predicate"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._verification = Histogram(
            "stilltrue_verification_duration_seconds",
            "Verification rounds: from the request for second looks until all had come, or no more were waited for",
            ["outcome"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._last = Gauge(
            "stilltrue_snapshot_last_complete_timestamp_seconds", "When the last complete snapshot ended", registry=registry
        )
        self._members = Gauge("stilltrue_members", "Members by state", ["state"], registry=registry)
        self._unexplained = Gauge(
            "stilltrue_unexplained_parties",
            "Parties of live members that have not moved for long, in no wait that is known",
            registry=registry,
        )
        self._coverage = Gauge(
            "stilltrue_coverage_members",
            "Members that answers cover, do not cover, and cover in part",
            ["scope", "coverage"],
            registry=registry,
        )
        self._incidents = Counter("stilltrue_incidents_total", "Incidents opened", ["predicate"], registry=registry)
        self._open = Gauge("stilltrue_incidents_open", "Incidents open now", ["predicate"], registry=registry)
        self._cores = Gauge(
            "stilltrue_incident_core_info",
            "The services in the core of each open incident",
            ["predicate", "services"],
            registry=registry,
        )
        self._cores_shown: dict[str, tuple[str, ...]] = {}
        self._dropped = Counter(
            "stilltrue_agent_reports_dropped_total", "Reports that agents could not send", registry=registry
        )
        self._refused = Counter("stilltrue_reports_refused_total", "Reports not taken", ["reason"], registry=registry)
        self._failed = Counter(
            "stilltrue_predicate_failures_total", "Evaluations without a verdict", ["predicate", "reason"], registry=registry
        )
        self._archive_errors = Counter(
            "stilltrue_archive_errors_total", "Writes to the store or the archive that failed", registry=registry
        )
        self._archive_dropped = Counter(
            "stilltrue_archive_dropped_total", "Snapshots not kept because the queue was full", registry=registry
        )
        self._archive_up = Gauge("stilltrue_archive_writable", "1 while the store can be written", registry=registry)
        Info("stilltrue_build", "What runs here", registry=registry).info(
            {"version": detector_version(), "python": platform.python_version()}
        )
        for outcome in Outcome:
            self._snapshots.labels(outcome.value)
        for answered in ("answered", "given_up"):
            self._verification.labels(answered)

    def text(self) -> bytes:
        """All of it, in Prometheus's text form."""
        counted = self._count_members()
        for state in MemberState:
            self._members.labels(state.value).set(counted.get(state, 0))
        self._unexplained.set(self._count_unexplained())
        return generate_latest(self._registry)

    def expect(self, predicate: str, scope: str) -> None:
        """Create a predicate's series before they first count: Prometheus sees no increase of a series that did not exist."""
        for state in Holds:
            self._state.labels(predicate, scope, state.value)
        for reason in ("failed", "overrun"):
            self._failed.labels(predicate, reason)
        self._incidents.labels(predicate)
        self._open.labels(predicate)

    def judged(self, verdict: Verdict, now: float, *, firm: bool = True) -> None:
        """A verdict was given; one that is not ``firm`` counts as undetermined."""
        ref = verdict.snapshot
        holds = verdict.holds if firm else Holds.UNDETERMINED
        for state in Holds:
            self._state.labels(verdict.predicate, ref.scope, state.value).set(1 if state is holds else 0)
        if verdict.coverage is not None and verdict.predicate == "deadlock":
            self._coverage.labels(ref.scope, "covered").set(verdict.coverage.members)
            self._coverage.labels(ref.scope, "blind").set(verdict.coverage.expected - verdict.coverage.members)
            self._coverage.labels(ref.scope, "partly").set(len(verdict.coverage.partly))
        if ref.begun is not None:
            self._verdict.labels(verdict.predicate).observe(max(0.0, now - ref.begun))

    def finished(self, assembled: Assembled) -> None:
        """A snapshot ended."""
        self._snapshots.labels(assembled.outcome.value).inc()
        ref = assembled.snapshot.ref
        if ref.begun is not None and ref.ended is not None:
            self._duration.observe(ref.ended - ref.begun)
            if assembled.outcome is Outcome.COMPLETE:
                self._last.set(ref.ended)

    def verified(self, seconds: float, *, given_up: bool) -> None:
        """A verification round ended; ``given_up``: with somebody who had not answered."""
        self._verification.labels("given_up" if given_up else "answered").observe(seconds)

    def count_members_by(self, count: Callable[[], Mapping[MemberState, int]], unexplained: Callable[[], int]) -> None:
        """How to count the members: it is done when the metrics are read, not each time that one of thousands joins.

        ``unexplained``: how to count their unexplained parties.
        """
        self._count_members = count
        self._count_unexplained = unexplained

    def incident_opened(self, predicate: str) -> None:
        """A new incident."""
        self._incidents.labels(predicate).inc()

    def incidents_open(self, predicate: str, count: int) -> None:
        """How many are open."""
        self._incidents.labels(predicate)
        self._open.labels(predicate).set(count)

    def cores(self, predicate: str, shown: tuple[str, ...]) -> None:
        """Set the open incidents: ``shown`` names each core by its services; series no longer shown are removed."""
        for services in self._cores_shown.get(predicate, ()):
            if services not in shown:
                self._cores.remove(predicate, services)
        for services in shown:
            self._cores.labels(predicate, services).set(1)
        self._cores_shown[predicate] = shown

    def agent_dropped(self, reports: int) -> None:
        """An agent had to drop this many more reports."""
        self._dropped.inc(reports)

    def report_refused(self, reason: str) -> None:
        """A report was not taken; ``reason`` is one of a few words."""
        self._refused.labels(reason).inc()

    def predicate_failed(self, predicate: str, reason: str) -> None:
        """A predicate raised, or ran too long."""
        self._failed.labels(predicate, reason).inc()

    def storage_failed(self) -> None:
        """A write to the store or the archive failed."""
        self._archive_errors.inc()

    def storage_dropped(self) -> None:
        """A snapshot was not kept because too many were waiting."""
        self._archive_dropped.inc()

    def store_writable(self, *, writable: bool) -> None:
        """Whether the store can be written."""
        self._archive_up.set(1 if writable else 0)
