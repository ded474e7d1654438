"""The service's Prometheus metrics, whose names docs/design.md fixes in section 8."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
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
    """The installed version; "unknown" in a bare checkout. Cached, because every welcome to an agent contains it."""
    try:
        return version("stilltrue-detector")
    except PackageNotFoundError:
        return "unknown"


class Metrics:
    """The service's metrics, in their own registry. Labels hold no ids."""

    def __init__(self) -> None:
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        counter, gauge = partial(Counter, registry=self._registry), partial(Gauge, registry=self._registry)
        seconds = partial(Histogram, buckets=_SECONDS, registry=self._registry)
        self._count_members: Callable[[], Mapping[MemberState, int]] = dict
        self._count_unexplained: Callable[[], tuple[int, int]] = lambda: (0, 0)
        state = "State of the newest verdict: 1 for the current state, else 0"
        self._state = gauge("stilltrue_predicate_state", state, ["predicate", "scope", "state"])
        self._snapshots = counter("stilltrue_snapshots_total", "Snapshots by outcome", ["outcome"])
        self._duration = seconds("stilltrue_snapshot_duration_seconds", "From the markers to the last report")
        self._verdict = seconds("stilltrue_verdict_duration_seconds", "From the markers to the verdict", ["predicate"])
        rounds = "Duration of verification rounds, until every second look had arrived or the detector gave up waiting"
        self._verification = seconds("stilltrue_verification_duration_seconds", rounds, ["outcome"])
        self._last = gauge("stilltrue_snapshot_last_complete_timestamp_seconds", "End of the last complete snapshot")
        self._members = gauge("stilltrue_members", "Members by state", ["state"])
        unexplained = "Parties of live members that have not moved for a while and are in no known wait"
        self._unexplained = gauge("stilltrue_unexplained_parties", unexplained)
        calls = "Calls that unexplained parties serve, and whose reply is due"
        self._unexplained_calls = gauge("stilltrue_unexplained_calls", calls)
        coverage = "Members by coverage: covered, blind (not covered) or partly covered"
        self._coverage = gauge("stilltrue_coverage_members", coverage, ["scope", "coverage"])
        self._incidents = counter("stilltrue_incidents_total", "Incidents opened", ["predicate"])
        self._open = gauge("stilltrue_incidents_open", "Currently open incidents", ["predicate"])
        cores = "Services in the core of each open incident"
        self._cores = gauge("stilltrue_incident_core_info", cores, ["predicate", "services"])
        self._cores_shown: dict[str, tuple[str, ...]] = {}
        self._dropped = counter("stilltrue_agent_reports_dropped_total", "Reports dropped by agents")
        self._refused = counter("stilltrue_reports_refused_total", "Reports refused", ["reason"])
        failures = "Evaluations that gave no verdict"
        self._failed = counter("stilltrue_predicate_failures_total", failures, ["predicate", "reason"])
        self._archive_errors = counter("stilltrue_archive_errors_total", "Failed writes to the store or the archive")
        queue_full = "Snapshots dropped because a storage queue was full"
        self._archive_dropped = counter("stilltrue_archive_dropped_total", queue_full)
        self._archive_up = gauge("stilltrue_archive_writable", "1 if the store can be written")
        Info("stilltrue_build", "Version of the running detector", registry=self._registry).info(
            {"version": detector_version(), "python": platform.python_version()}
        )
        for outcome in Outcome:
            self._snapshots.labels(outcome.value)
        for answered in ("answered", "given_up"):
            self._verification.labels(answered)

    def text(self) -> bytes:
        """All metrics in Prometheus's text format."""
        counted = self._count_members()
        for state in MemberState:
            self._members.labels(state.value).set(counted.get(state, 0))
        unexplained, calls = self._count_unexplained()
        self._unexplained.set(unexplained)
        self._unexplained_calls.set(calls)
        return generate_latest(self._registry)

    def expect(self, predicate: str, scope: str) -> None:
        """Create a predicate's series in advance: Prometheus sees no increase when a new series starts at 1."""
        for state in Holds:
            self._state.labels(predicate, scope, state.value)
        for reason in ("failed", "overrun"):
            self._failed.labels(predicate, reason)
        self._incidents.labels(predicate)
        self._open.labels(predicate)

    def verdict(self, verdict: Verdict, now: float, *, firm: bool = True) -> None:
        """Record a verdict; one that is not ``firm`` counts as undetermined."""
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
        """Record the end of a snapshot."""
        self._snapshots.labels(assembled.outcome.value).inc()
        ref = assembled.snapshot.ref
        if ref.begun is not None and ref.ended is not None:
            self._duration.observe(ref.ended - ref.begun)
            if assembled.outcome is Outcome.COMPLETE:
                self._last.set(ref.ended)

    def verified(self, seconds: float, *, given_up: bool) -> None:
        """Record the end of a verification round; ``given_up``: some member had not answered."""
        self._verification.labels("given_up" if given_up else "answered").observe(seconds)

    def set_member_counts(
        self, count: Callable[[], Mapping[MemberState, int]], unexplained: Callable[[], tuple[int, int]]
    ) -> None:
        """Set how to count members, and their ``unexplained`` parties and calls, which is done at each scrape.

        Counting whenever one of thousands of members joins would be slower.
        """
        self._count_members = count
        self._count_unexplained = unexplained

    def incident_opened(self, predicate: str) -> None:
        """Record a new incident."""
        self._incidents.labels(predicate).inc()

    def incidents_open(self, predicate: str, count: int) -> None:
        """Set the number of open incidents."""
        self._incidents.labels(predicate)
        self._open.labels(predicate).set(count)

    def cores(self, predicate: str, shown: tuple[str, ...]) -> None:
        """Set the open incidents' cores, each named by its services; series that are no longer ``shown`` are removed."""
        for services in self._cores_shown.get(predicate, ()):
            if services not in shown:
                self._cores.remove(predicate, services)
        for services in shown:
            self._cores.labels(predicate, services).set(1)
        self._cores_shown[predicate] = shown

    def agent_dropped(self, reports: int) -> None:
        """Record that an agent dropped this many more reports."""
        self._dropped.inc(reports)

    def report_refused(self, reason: str) -> None:
        """Record a refused report; ``reason`` is one of a few words."""
        self._refused.labels(reason).inc()

    def predicate_failed(self, predicate: str, reason: str) -> None:
        """Record that a predicate raised or exceeded its time limit."""
        self._failed.labels(predicate, reason).inc()

    def storage_failed(self) -> None:
        """Record a failed write to the store or the archive."""
        self._archive_errors.inc()

    def storage_dropped(self) -> None:
        """Record a snapshot that was dropped because too many were queued."""
        self._archive_dropped.inc()

    def store_writable(self, *, writable: bool) -> None:
        """Set whether the store can be written."""
        self._archive_up.set(1 if writable else 0)
