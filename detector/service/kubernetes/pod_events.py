"""Kubernetes Events on the pods of an incident: ``kubectl describe pod`` says that it is deadlocked, and when that is over.

Rules:

1. The service never waits: what is to be told is queued, and told in order. What does not fit is dropped, and logged.
2. A pod is the one that a member names (its label ``pod``, which the agent sets to ``POD_NAME``, or else its own name), in the
   namespace of its label ``namespace``, or else in the only one of those configured that has such a pod. What is no pod there
   gets no Event.
3. An Event's name follows from the incident and the pod: told twice, it is there once.
4. Each request is tried a few times, unless it was refused: the same would be refused again.
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
"""Pods of one incident that get an Event."""
ATTEMPTS_MAX = 4
PAUSE_SECONDS = 1.0
MESSAGE_BYTES_MAX = 1000
"""The API server takes 1,024 bytes of a message."""
_POD_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_TRIED_AGAIN = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.REQUEST_TIMEOUT})
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod as an Event refers to it."""

    namespace: str
    name: str
    uid: str


class PodEvents:
    """Tells the pods of each incident that opens or ends. Every method is called on the event loop."""

    def __init__(
        self, server: ApiServer, namespaces: Iterable[str], member_of: Callable[[ProcessName], Member | None], log: Log,
        *, known: Iterable[str] = (), pages: str = "", pause_seconds: float = PAUSE_SECONDS,
    ) -> None:  # fmt: skip
        """``known``: ids of the incidents told before a restart; ``pages``: the address of the pages, for links."""
        self._server = server
        self._namespaces = tuple(namespaces)
        self._member_of = member_of
        self._log = log
        self._told_open = set(known)
        self._pods: dict[str, list[Pod]] = {}
        self._pages = pages.rstrip("/")
        self._pause_seconds = pause_seconds
        self._queue: asyncio.Queue[tuple[Incident, list[tuple[str, str]]]] = asyncio.Queue(QUEUED_MAX)

    def tell(self, incident: Incident) -> None:
        """An incident changed; its pods are told if it opened or ended. Never waits (rule 1)."""
        if incident.open is (incident.id in self._told_open):
            return
        if incident.open:
            self._told_open.add(incident.id)
        else:
            self._told_open.discard(incident.id)
        try:
            self._queue.put_nowait((incident, self._named(incident)))
        except asyncio.QueueFull:
            self._log.warning("events not sent", incident=incident.id, reason=f"{QUEUED_MAX} incidents are already queued")

    async def run(self) -> None:
        """Send what is queued, until cancelled."""
        async with Api(self._server) as api:
            while True:
                incident, named = await self._queue.get()
                pods = self._pods.pop(incident.id, None)
                if pods is None:
                    pods = [pod for one in named if (pod := await self._found(api, *one)) is not None]
                if incident.open:
                    self._pods[incident.id] = pods
                for pod in pods:
                    await self._tried(partial(self._create, api, pod, incident), pod.name)

    def _named(self, incident: Incident) -> list[tuple[str, str]]:
        """Rule 2: the namespace (empty: not known) and name of each pod that its core's members name."""
        found: dict[tuple[str, str], None] = {}
        for name in dict.fromkeys(process_of(PartyName(party)) for party in incident.core):
            member = self._member_of(name)
            labels = {} if member is None else member.labels
            pod, namespace = labels.get(POD_LABEL, name), labels.get(NAMESPACE_LABEL, "")
            if _POD_NAME.fullmatch(pod) and namespace in ("", *self._namespaces):
                found[namespace, pod] = None
        return list(found)[:PODS_MAX]

    async def _found(self, api: Api, namespace: str, name: str) -> Pod | None:
        """Rule 2."""
        places = (namespace,) if namespace else self._namespaces
        found = [await self._tried(partial(_read, api, place, name), name) for place in places]
        pods = [pod for pod in found if pod is not None]
        return pods[0] if len(pods) == 1 else None

    async def _create(self, api: Api, pod: Pod, incident: Incident) -> None:
        """Rule 3."""
        try:
            await api.post(f"/api/v1/namespaces/{pod.namespace}/events", event_of(incident, pod, self._pages))
        except ApiError as error:
            if error.status != HTTPStatus.CONFLICT:  # it is there already
                raise

    async def _tried(self, attempt: Callable[[], Awaitable[_T]], pod: str) -> _T | None:
        """Rule 4."""
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
    """The Event (core/v1) that tells ``pod`` of the incident's beginning or end."""
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
    return status is not None and status < HTTPStatus.INTERNAL_SERVER_ERROR and status not in _TRIED_AGAIN


def _hint(status: int | None) -> str:
    return (
        ": its account may not get pods and create events there (chart: detector.kubernetesEvents)"
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
        else ""
    )
