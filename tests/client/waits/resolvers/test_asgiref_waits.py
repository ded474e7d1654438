"""A thread in ``async_to_sync`` waits for the coroutine's task; a task in ``sync_to_async`` for the thread of the function."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from asgiref.sync import ThreadSensitiveContext, async_to_sync, sync_to_async

from stilltrue.protocol.report import PartyTarget
from tests.client.look.worlds import PATIENCE_SECONDS, look_at, of, report_of
from tests.client.waits.conftest import Front, targets


def waits(front: Front) -> dict[str, list[str]]:
    return {
        one.waiter.split("/", 1)[1]: targets(one)
        for one in report_of(front.agent).waits
        if isinstance(one.among[0], PartyTarget)
    }


def until(front: Front, waiter: str, *enders: str) -> None:
    """Wait until this party, which may have any number in its name, is seen to wait for these."""
    for _ in range(int(PATIENCE_SECONDS / 0.05)):
        found = next((those for party, those in waits(front).items() if party.startswith(waiter)), [])
        if len(found) == len(enders) and all(one.startswith(start) for one, start in zip(found, enders, strict=True)):
            return
        threading.Event().wait(0.05)
    pytest.fail(f"no wait of {waiter} for {enders}: {waits(front)}")


def test_a_thread_waits_for_its_coroutine_on_a_new_loop(front: Front) -> None:
    over: list[Any] = []

    async def wait() -> None:
        event = asyncio.Event()
        over.append((asyncio.get_running_loop(), event))
        await event.wait()

    thread = front.start("caller", async_to_sync(wait))
    until(front, "thread:caller", "task:")
    report = front.report_when_still("caller")
    assert of(look_at(front.agent, report), "front/thread:caller").unchanged
    loop, event = over[0]
    loop.call_soon_threadsafe(event.set)
    thread.join()


def test_a_thread_of_a_view_waits_for_its_coroutine_on_the_main_loop(front: Front) -> None:
    over: list[Any] = []

    async def wait() -> None:
        event = asyncio.Event()
        over.append((asyncio.get_running_loop(), event))
        await event.wait()

    async def request() -> None:
        async with ThreadSensitiveContext():
            await sync_to_async(async_to_sync(wait))()

    thread = front.start("server", lambda: asyncio.run(request()))
    until(front, "thread:ThreadPoolExecutor", "task:")
    loop, event = over[0]
    loop.call_soon_threadsafe(event.set)
    thread.join()


def test_a_task_waits_for_the_thread_that_runs_its_function(front: Front) -> None:
    """The function runs in the thread of ``async_to_sync``, which is no executor's."""

    async def ask() -> None:
        await sync_to_async(front.get)(b"")

    front.start("caller", async_to_sync(ask))
    front.wait_for_callers()
    until(front, "task:", "thread:caller")
    front.let_go()
