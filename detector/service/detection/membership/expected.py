"""The expected members of a scope, and which of them have not joined yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from detector.service.settings import Expectation
from stilltrue.model import ProcessName, ProcessState

POD_LABEL = "pod"
"""The label that the agent sets to ``POD_NAME``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pods:
    """The names of a Kubernetes Service's pods; ``unknown``: why they are unknown, else empty."""

    names: frozenset[str] = frozenset()
    unknown: str = ""


class Expected:
    """The expected members of all scopes, including the pods of Services."""

    def __init__(self, expectations: Mapping[str, Expectation]) -> None:
        self._expectations = expectations
        self._pods = {service: Pods(unknown="not read yet") for one in expectations.values() for service in one.services}

    @property
    def services(self) -> list[str]:
        """The Kubernetes Services (``NAMESPACE/NAME``) whose pods must be known."""
        return sorted(self._pods)

    def found(self, service: str, pods: Pods) -> None:
        """Set the pods of a Service."""
        self._pods[service] = pods

    def __contains__(self, scope: str) -> bool:
        """Whether any member is expected in ``scope``."""
        return scope in self._expectations

    def lacking(self, scope: str, joined: Mapping[ProcessName, ProcessState]) -> int:
        """The number of expected members, as far as known, that are not in ``joined``."""
        return 0 if scope not in self else self._counted(self._expectations[scope], joined)[0]

    def doubt(self, scope: str, joined: Mapping[ProcessName, ProcessState]) -> str:
        """The reason for doubting that all expected members have joined; empty if they have, or none are expected."""
        if scope not in self:
            return ""
        expectation = self._expectations[scope]
        lacking, total = self._counted(expectation, joined)
        doubts = [f"{total - lacking} of {total} expected have joined"] if lacking else []
        for service in sorted(expectation.services):
            unknown = self._pods[service].unknown
            doubts += [f"the pods of Service {service} are unknown: {unknown}"] if unknown else []
        return "; ".join(doubts)

    def _counted(self, expectation: Expectation, joined: Mapping[ProcessName, ProcessState]) -> tuple[int, int]:
        """The numbers of missing and of expected members."""
        if expectation.count:
            return max(0, expectation.count - len(joined)), expectation.count
        pods = frozenset[str]().union(*(self._pods[service].names for service in expectation.services))
        lacking = len(expectation.names - _names_of(joined)) + len(pods - _pods_of(joined))
        return lacking, len(expectation.names) + len(pods)


def _names_of(joined: Mapping[ProcessName, ProcessState]) -> frozenset[str]:
    return frozenset(joined) | {state.service for state in joined.values()}


def _pods_of(joined: Mapping[ProcessName, ProcessState]) -> frozenset[str]:
    """The names of the processes' pods: of the label, or else of the process."""
    return frozenset(joined) | frozenset(_labelled(joined.values()))


def _labelled(states: Iterable[ProcessState]) -> Iterable[str]:
    return (state.labels[POD_LABEL] for state in states if POD_LABEL in state.labels)
