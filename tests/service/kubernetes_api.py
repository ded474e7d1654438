"""A Kubernetes API server that knows Leases: versions that rise, conflicts, and clients that cannot reach it."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from aiohttp import web

from detector.service.kubernetes.api import ApiServer

TOKEN = "the-pods-token"


class Leases:
    """Each client has a path of its own (``/NAME``), so that its way can be cut."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.holders: list[str] = []
        """Who has held it, in order; an empty name: it was given up."""
        self.refused: dict[str, int] = {}
        """By client, the status that it gets."""
        self.conflicts = 0
        self.together: asyncio.Barrier | None = None
        """Readers wait for each other here."""
        self._version = 0

    def server(self, account: Path, url: str, client: str) -> ApiServer:
        account.mkdir(exist_ok=True)
        (account / "token").write_text(TOKEN)
        (account / "namespace").write_text("ops\n")
        return ApiServer(url=f"{url}/{client}" if client else url, account=account)

    async def answer(self, request: web.Request) -> web.Response:
        if (status := self.refused.get(request.match_info.get("client", ""))) is not None:
            return web.json_response({}, status=status)
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return web.json_response({}, status=401)
        match request.method:
            case "GET":
                found = copy.deepcopy(self.lease)
                if self.together is not None:
                    await self.together.wait()
                return web.json_response(found or {}, status=404 if found is None else 200)
            case "POST":
                return self._conflict() if self.lease is not None else self._keep(await request.json(), 201)
            case _:
                body = await request.json()
                if self.lease is None:
                    return web.json_response({}, status=404)
                same = body["metadata"]["resourceVersion"] == self.lease["metadata"]["resourceVersion"]
                return self._keep(body, 200) if same else self._conflict()

    def _conflict(self) -> web.Response:
        self.conflicts += 1
        return web.json_response({}, status=409)

    def _keep(self, body: dict[str, Any], status: int) -> web.Response:
        self._version += 1
        assert body["kind"] == "Lease"
        assert body["metadata"]["name"] == "stilltrue"
        self.lease = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self._version)}}
        holder = body["spec"]["holderIdentity"]
        if not self.holders or self.holders[-1] != holder:
            self.holders.append(holder)
        return web.json_response(self.lease, status=status)


@contextlib.asynccontextmanager
async def answering(leases: Leases, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Its address while it answers."""
    app = web.Application()
    for prefix in ("", "/{client}"):
        path = f"{prefix}/apis/coordination.k8s.io/v1/namespaces/ops/leases"
        app.router.add_route("POST", path, leases.answer)
        for method in ("GET", "PUT"):
            app.router.add_route(method, f"{path}/stilltrue", leases.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "localhost", 0, ssl_context=tls)
    await site.start()
    try:
        yield f"{'http' if tls is None else 'https'}://localhost:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
