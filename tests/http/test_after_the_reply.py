"""After its reply the task of a request (running Starlette's background tasks) is a separate party."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import BackgroundTasks, FastAPI

import stilltrue
from stilltrue.agent import Agent
from stilltrue.runtime.parties import Parties


@pytest.fixture
def agent() -> Iterator[Agent]:
    yield stilltrue.instrument(service="here", instance="here", detector="127.0.0.1:1")
    stilltrue.uninstrument()


def _acting(agent: Agent) -> tuple[str, bool]:
    parties: Parties = agent.parties
    return str(parties.current()), parties.serving() is not None


def _serve(app: Any) -> None:
    async def run() -> None:
        scope = {"type": "http", "method": "GET", "path": "/one", "headers": [], "query_string": b"", "root_path": ""}
        asked: asyncio.Queue[Any] = asyncio.Queue()
        asked.put_nowait({"type": "http.request", "body": b"", "more_body": False})

        async def send(message: Any) -> None:
            """Discard the message."""

        await app(scope, asked.get, send)

    async def in_task() -> None:
        await asyncio.create_task(run(), name="one")

    asyncio.run(in_task())


@pytest.mark.parametrize("around", [False, True], ids=["bare", "within a middleware"])
def test_a_background_task_is_not_part_of_the_request(agent: Agent, around: bool) -> None:
    app, seen = FastAPI(), list[tuple[str, bool]]()
    if around:

        @app.middleware("http")
        async def pass_on(request: Any, call_next: Any) -> Any:
            reply = await call_next(request)
            seen.append(_acting(agent))
            return reply

    async def later() -> None:
        seen.append(_acting(agent))

    @app.get("/one")
    async def one(tasks: BackgroundTasks) -> str:
        if not around:
            seen.append(_acting(agent))
        tasks.add_task(later)
        return "one"

    _serve(app)
    assert seen[0] == ("here/GET:one#1", True)
    assert seen[1][0] != "here/GET:one#1"
    assert not seen[1][1]
    assert agent.live.faults == 0


def test_a_reply_in_parts_ends_with_its_last_part(agent: Agent) -> None:
    seen: list[tuple[str, bool]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for more in (True, False):
            seen.append(_acting(agent))
            await send({"type": "http.response.body", "body": b"part", "more_body": more})
        seen.append(_acting(agent))

    _serve(agent.asgi(app))
    assert seen == [("here/GET:one#1", True), ("here/GET:one#1", True), ("here/task:one", False)]
