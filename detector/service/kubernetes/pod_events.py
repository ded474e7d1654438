"""Kubernetes Events on an incident's pods, so that ``kubectl describe pod`` shows the deadlock and its end.

Rules:

1. The service never waits: incidents are queued and handled in order. Those that do not fit are dropped and logged.
2. A member's pod is named by its label ``pod`` (which the agent sets to ``POD_NAME``), or else by its own name. The namespace
   is its label ``namespace``, or else the only configured one that has such a pod. Without such a pod there is no Event.
3. An Event's name is derived from the incident and the pod, so sending it twice creates it once.
4. Each request is retried a few times, unless it was refused: the same request would be refused again.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, TypeVar

from detector.core.times import write_time
from detector.ops.logs import Log
from detector.service.detection.incident.incidents import Incident
from detector.service.detection.membership.expected import POD_LABEL
from detector.service.detection.membership.members import Member
from detector.service.kubernetes.api import Api, ApiError, ApiServer
from detector.service.notify import summary
from stilltrue.model import PartyName, ProcessName, process_of

NAMESPACE_LABEL = "namespace"
COMPONENT = "stilltrue"
QUEUED_MAX = 1000
PODS_MAX = 50
"""Maximum number of pods of one incident that get an Event."""
ATTEMPTS_MAX = 4
PAUSE_SECONDS = 1.0
MESSAGE_BYTES_MAX = 1000
"""The API server accepts messages of up to 1,024 bytes."""
_POD_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_RETRIED = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.REQUEST_TIMEOUT})
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod as an Event refers to it."""

    namespace: str
    name: str
    uid: str


class PodEvents:
    """Sends an Event to the pods of each incident that opens or ends. Every method is called on the event loop."""

    def __init__(
        self, server: ApiServer, namespaces: Iterable[str], member_of: Callable[[ProcessName], Member | None], log: Log,
        *, known: Iterable[str] = (), pages: str = "", pause_seconds: float = PAUSE_SECONDS,
    ) -> None:  # fmt: skip
        """``known``: ids of the incidents that were sent before a restart; ``pages``: the web UI's public URL, for links."""
        self._server = server
        self._namespaces = tuple(namespaces)
        self._member_of = member_of
        self._log = log
        self._notified_open = set(known)
        self._pods: dict[str, list[Pod]] = {}
        self._pages = pages.rstrip("/")
        self._pause_seconds = pause_seconds
        self._queue: asyncio.Queue[tuple[Incident, list[tuple[str, str]]]] = asyncio.Queue(QUEUED_MAX)

    def changed(self, incident: Incident) -> None:
        """Queue Events if the changed incident has opened or ended. Never waits (rule 1)."""
        if incident.open is (incident.id in self._notified_open):
            return
        if incident.open:
            self._notified_open.add(incident.id)
        else:
            self._notified_open.discard(incident.id)
        try:
            self._queue.put_nowait((incident, self._named(incident)))
        except asyncio.QueueFull:
            self._log.warning("events not sent", incident=incident.id, reason=f"{QUEUED_MAX} incidents are already queued")

    async def run(self) -> None:
        """Send queued Events until cancelled."""
        async with Api(self._server) as api:
            while True:
                incident, named = await self._queue.get()
                pods = self._pods.pop(incident.id, None)
                if pods is None:
                    pods = [pod for one in named if (pod := await self._find(api, *one)) is not None]
                if incident.open:
                    self._pods[incident.id] = pods
                for pod in pods:
                    await self._retry(partial(self._create, api, pod, incident), pod.name)

    def _named(self, incident: Incident) -> list[tuple[str, str]]:
        """The namespace (empty: unknown) and name of the pods of the core's members (rule 2)."""
        found: dict[tuple[str, str], None] = {}
        for name in dict.fromkeys(process_of(PartyName(party)) for party in incident.core):
            member = self._member_of(name)
            labels = {} if member is None else member.labels
            pod, namespace = labels.get(POD_LABEL, name), labels.get(NAMESPACE_LABEL, "")
            if _POD_NAME.fullmatch(pod) and namespace in ("", *self._namespaces):
                found[namespace, pod] = None
        return list(found)[:PODS_MAX]

    async def _find(self, api: Api, namespace: str, name: str) -> Pod | None:
        """Look up a pod (rule 2)."""
        places = (namespace,) if namespace else self._namespaces
        found = [await self._retry(partial(_read, api, place, name), name) for place in places]
        pods = [pod for pod in found if pod is not None]
        return pods[0] if len(pods) == 1 else None

    async def _create(self, api: Api, pod: Pod, incident: Incident) -> None:
        """Create an Event, unless it exists (rule 3)."""
        try:
            await api.post(f"/api/v1/namespaces/{pod.namespace}/events", event_of(incident, pod, self._pages))
        except ApiError as error:
            if error.status != HTTPStatus.CONFLICT:  # it exists already
                raise

    async def _retry(self, attempt: Callable[[], Awaitable[_T]], pod: str) -> _T | None:
        """Make a request, with retries (rule 4); None if it failed."""
        reason = ""
        for number in range(ATTEMPTS_MAX):
            if number:
                await asyncio.sleep(self._pause_seconds * 2 ** (number - 1))
            try:
                return await attempt()
            except ApiError as error:
                reason = f"{error}{_hint(error.status)}"
                if _is_final(error.status):
                    break
            except (ValueError, KeyError, TypeError) as error:
                reason = f"{type(error).__name__}: {error}"
        self._log.warning("event not sent", pod=pod, reason=reason)
        return None


async def _read(api: Api, namespace: str, name: str) -> Pod | None:
    try:
        found = await api.get(f"/api/v1/namespaces/{namespace}/pods/{name}")
    except ApiError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return None
        raise
    return Pod(namespace=namespace, name=name, uid=str(found["metadata"]["uid"]))


def event_of(incident: Incident, pod: Pod, pages: str = "") -> dict[str, Any]:
    """The Event (core/v1) on ``pod`` for the incident's beginning or end."""
    kind = "".join(word.capitalize() for word in incident.predicate.split("-"))
    at = write_time(float(int(incident.opened if incident.closed is None else incident.closed)))
    link = f" {pages}/incidents/{incident.id}" if pages else ""
    ending = "" if incident.open else "-ended"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{pod.name[:150]}.{incident.id.lower()}{ending}-{incident.last_snapshot}",
            "namespace": pod.namespace,
        },
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid},
        "reason": kind if incident.open else f"{kind}Over",
        "message": _shortened(summary(incident), MESSAGE_BYTES_MAX - len(link.encode())) + link,
        "type": "Warning" if incident.open else "Normal",
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": COMPONENT,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }


def _shortened(text: str, bytes_max: int) -> str:
    encoded = text.encode()
    return text if len(encoded) <= bytes_max else encoded[: max(0, bytes_max - 3)].decode(errors="ignore") + "..."


def _is_final(status: int | None) -> bool:
    return status is not None and status < HTTPStatus.INTERNAL_SERVER_ERROR and status not in _RETRIED


def _hint(status: int | None) -> str:
    return (
        ": its account may not get pods and create events there (chart: detector.kubernetesEvents)"
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
        else ""
    )
