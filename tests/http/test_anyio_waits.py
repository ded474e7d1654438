"""Waits of anyio tasks, read from their frames: for threads, tokens of a limiter, the task of a middleware."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import pytest
from anyio.to_thread import run_sync
from starlette.middleware.base import BaseHTTPMiddleware

from stilltrue.model import ProcessName
from stilltrue.runtime.look.called_code.call_graph import names_in
from stilltrue.runtime.parties import Parties
from stilltrue.runtime.waits.process_view import LiveProcessView
from stilltrue.runtime.waits.registry import resolve
from stilltrue.runtime.waits.wait import SeenWait

SECONDS_MAX = 20.0


@pytest.fixture
async def gate() -> AsyncIterator[threading.Event]:
    """Functions in threads wait for it."""
    gate = threading.Event()
    yield gate
    gate.set()


async def until(found: Callable[[], Any]) -> Any:
    end = time.monotonic() + SECONDS_MAX
    while not (result := found()):
        assert time.monotonic() < end
        await asyncio.sleep(0.01)
    return result


async def wait_of(task: asyncio.Task[Any]) -> SeenWait:
    """The wait that another thread (as the agent's) reads from a task, once the task waits."""

    def read() -> SeenWait | None:
        view = LiveProcessView(Parties(ProcessName("here")), time.time())
        stack = view.stacks_of_tasks().get(task)
        return None if stack is None else resolve(stack, view)

    while (found := await asyncio.to_thread(read)) is None:
        await asyncio.sleep(0.01)
    return found


@pytest.mark.timeout(60)
async def test_a_function_in_a_thread(gate: threading.Event) -> None:
    running: list[int] = []

    def work() -> None:
        running.append(threading.get_ident())
        gate.wait(SECONDS_MAX)

    task = asyncio.create_task(run_sync(work))
    await until(lambda: running)
    assert (await wait_of(task)).enders == (running[0],)
    gate.set()
    await task


@pytest.mark.timeout(60)
async def test_a_token_of_a_limiter(gate: threading.Event) -> None:
    limiter = anyio.CapacityLimiter(2)

    async def work() -> None:
        await run_sync(gate.wait, SECONDS_MAX, limiter=limiter)

    having = [asyncio.create_task(work()) for _ in range(2)]
    await until(lambda: limiter.borrowed_tokens == 2)
    third = asyncio.create_task(work())
    found = await wait_of(third)
    assert set(found.enders or ()) == set(having)
    assert found.needs == 1
    assert found.ended_through == (limiter,)
    assert found.ending_names == {"total_tokens", "release_on_behalf_of"}
    gate.set()
    await asyncio.gather(*having, third)


def test_only_setting_the_number_of_tokens_ends_a_wait() -> None:
    def raises(limiter: anyio.CapacityLimiter) -> None:
        limiter.total_tokens = 8

    def measures(limiter: anyio.CapacityLimiter) -> float:
        return limiter.total_tokens

    assert "total_tokens" in names_in(raises.__code__)
    assert "total_tokens" not in names_in(measures.__code__)


@pytest.mark.timeout(60)
async def test_a_middleware_waits_for_its_inner_application() -> None:
    begun, go = asyncio.Event(), asyncio.Event()
    called: list[asyncio.Task[Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        called.append(asyncio.current_task())  # type: ignore[arg-type]  # it runs in one
        begun.set()
        await go.wait()
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    async def around(request: Any, call_next: Any) -> Any:
        return await call_next(request)

    async def receive() -> Any:
        return {"type": "http.request"}

    async def send(message: Any) -> None:
        pass

    middleware = BaseHTTPMiddleware(app, dispatch=around)
    scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
    task = asyncio.create_task(middleware(scope, receive, send))
    await begun.wait()
    assert (await wait_of(task)).enders == (called[0],)
    go.set()
    await task


@pytest.mark.timeout(60)
async def test_leaving_a_task_group_waits_for_its_tasks(gate: threading.Event) -> None:
    async def leave() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(run_sync, gate.wait, SECONDS_MAX, name="inner")

    leaving = asyncio.create_task(leave())
    found = await wait_of(leaving)
    assert [one.get_name() for one in found.enders or () if isinstance(one, asyncio.Task)] == ["inner"]
    gate.set()
    await leaving


@pytest.mark.timeout(60)
async def test_a_lock_that_another_task_holds() -> None:
    lock, go = anyio.Lock(), asyncio.Event()

    async def hold() -> None:
        async with lock:
            await go.wait()

    async def take() -> None:
        async with lock:
            pass

    holding = asyncio.create_task(hold())
    while not lock.locked():
        await asyncio.sleep(0)
    waiting = asyncio.create_task(take())
    assert (await wait_of(waiting)).enders == (holding,)
    go.set()
    await asyncio.wait([holding, waiting])
