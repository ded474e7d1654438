"""Leader election by a Kubernetes Lease (``coordination.k8s.io/v1``): of several detectors, its holder serves.

Rules:

1. Another holder's lease is valid until it has not changed for its duration, by our own clock since we saw the last change:
   clocks of different machines are never compared.
2. Each change names the ``resourceVersion`` that it replaces. If the API server refuses it (409), another was faster.
3. A holder that has not renewed the lease for :data:`KEPT_OF_DURATION` of its duration gives up its role: it stops before
   another can begin, even if it cannot reach the API server or was suspended.
4. A holder that shuts down cleanly releases the lease, so that the next one need not wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from detector.ops.logs import Log
from detector.service.kubernetes.api import Api, ApiError, ApiServer

KEPT_OF_DURATION = 2 / 3
RENEWALS = 5
"""How often a lease is renewed or checked within its duration."""
_GROUP = "/apis/coordination.k8s.io/v1"


def own_identity() -> str:
    """The name of this process in a lease: its pod's name and a random suffix, which its predecessor there lacks."""
    return f"{socket.gethostname()}_{os.urandom(4).hex()}"


class Lease:
    """A lease as one process sees it; ``holds``: whether this process is the holder."""

    def __init__(self, api: Api, *, namespace: str, name: str, identity: str, seconds: int, log: Log) -> None:
        """``seconds``: the duration of the lease while ``identity`` holds it."""
        self.name = f"{namespace}/{name}"
        self._api = api
        self._leases = f"{_GROUP}/namespaces/{namespace}/leases"
        self._own = name
        self._identity = identity
        self._seconds = seconds
        self._log = log
        self._changed = asyncio.Condition()
        self._renewed_at = float("-inf")
        self._last: dict[str, Any] | None = None
        self._last_at = float("-inf")
        self._problem = ""

    @property
    def holds(self) -> bool:
        """Whether this process may act as the holder (rule 3)."""
        return time.monotonic() < self._renewed_at + KEPT_OF_DURATION * self._seconds

    async def held(self) -> None:
        """Wait until this process holds the lease."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.holds)

    async def lost(self) -> None:
        """Wait until this process no longer holds the lease."""
        while (left := self._renewed_at + KEPT_OF_DURATION * self._seconds - time.monotonic()) > 0:
            async with self._changed:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), left)

    async def run(self) -> None:
        """Acquire and renew the lease until cancelled."""
        while True:
            await self._attempt()
            await asyncio.sleep(self._seconds / RENEWALS)

    async def release(self) -> None:
        """Release the lease if this process holds it (rule 4)."""
        if self.holds and self._last is not None:
            self._renewed_at = float("-inf")
            with contextlib.suppress(ApiError):  # it then expires by itself
                await self._put(self._last, {"holderIdentity": "", "leaseDurationSeconds": 1})

    # -- one attempt ---------------------------------------------------------------------------------------------------

    async def _attempt(self) -> None:
        begun, held = time.monotonic(), self.holds
        try:
            ours = await self._renew() if held else await self._take()
        except ApiError as error:
            if error.status not in (HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND):
                self._failed(error)
                return
            self._last, ours = None, held  # the next attempt finds the holder
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            self._failed(ApiError(f"invalid answer: {type(error).__name__}: {error}"))
            return
        else:
            self._problem = ""
            self._renewed_at = begun if ours else float("-inf")
        if ours is not held:
            self._log.info("lease held" if ours else "lease held by another", lease=self.name, identity=self._identity)
        async with self._changed:
            self._changed.notify_all()

    def _failed(self, error: ApiError) -> None:
        if self._problem != str(error):
            self._problem = str(error)
            refused = error.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
            hint = ": its account may not get, create and update leases there (chart: standby.enabled)" if refused else ""
            self._log.warning("lease not reached", lease=self.name, reason=f"{error}{hint}")

    async def _renew(self) -> bool:
        """Renew the lease that we hold; if its present state is unknown, read it first."""
        if self._last is None:
            return await self._take()
        self._keep(await self._put(self._last, {"renewTime": _now()}))
        return True

    async def _take(self) -> bool:
        """Take the lease if nobody holds it (rule 1); return whether we hold it now."""
        found = await self._find()
        if found is None:
            spec = self._claim(0)
            self._keep(await self._api.post(self._leases, _document(self._own, spec)))
            return True
        spec = found["spec"]
        if spec.get("holderIdentity") and spec["holderIdentity"] != self._identity and not self._has_expired(found):
            return False
        self._keep(await self._put(found, self._claim(int(spec.get("leaseTransitions") or 0) + 1)))
        return True

    async def _find(self) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = await self._api.get(f"{self._leases}/{self._own}")
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise
        if self._last is None or found["metadata"]["resourceVersion"] != self._last["metadata"]["resourceVersion"]:
            self._keep(found)
        return found

    def _keep(self, found: dict[str, Any]) -> None:
        self._last, self._last_at = found, time.monotonic()

    def _has_expired(self, found: dict[str, Any]) -> bool:
        return time.monotonic() > self._last_at + float(found["spec"].get("leaseDurationSeconds") or self._seconds)

    def _claim(self, transitions: int) -> dict[str, Any]:
        now = _now()
        return {
            "holderIdentity": self._identity, "leaseDurationSeconds": self._seconds, "acquireTime": now, "renewTime": now,
            "leaseTransitions": transitions,
        }  # fmt: skip

    async def _put(self, found: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
        """Change ``found``, which names its version (rule 2)."""
        body = {**found, "spec": {**found["spec"], **change}}
        answer: dict[str, Any] = await self._api.put(f"{self._leases}/{self._own}", body)
        return answer


@contextlib.asynccontextmanager
async def leasing(server: ApiServer, where: str, seconds: int, log: Log) -> AsyncIterator[Lease]:
    """Compete for the lease ``where`` (``NAME`` in the pod's namespace, or ``NAMESPACE/NAME``) within the block."""
    namespace, _, name = where.rpartition("/")
    async with Api(server, attempt_seconds_max=seconds / RENEWALS) as api:
        lease = Lease(
            api, namespace=namespace or server.namespace(), name=name, identity=own_identity(), seconds=seconds, log=log
        )
        renewing = asyncio.create_task(lease.run())
        try:
            yield lease
        finally:
            renewing.cancel()
            await asyncio.wait([renewing])
            await lease.release()


def _document(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
