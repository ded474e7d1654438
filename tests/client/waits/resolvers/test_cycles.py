"""Tasks that await each other are seen, even if none of them serves or makes a call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from stilltrue import Agent
from stilltrue.model import PartyName
from stilltrue.protocol.report import LocalWait, PartyTarget
from tests.client.look.worlds import look_at, report_of, settle


@pytest.mark.parametrize("how", ["wait", "shield", "group", "timeout", "ends"])
async def test_tasks_that_await_each_other_are_stuck_unless_one_has_a_timeout_or_ends(
    alone: Callable[..., Agent], how: str
) -> None:
    agent = alone("alone")
    tasks: dict[str, Any] = {}

    async def one() -> None:
        await asyncio.sleep(0)
        match how:
            case "wait" | "group":
                await asyncio.wait([tasks["two"]])
            case "shield" | "ends":
                await asyncio.shield(tasks["two"])
            case _:
                await asyncio.wait([tasks["two"]], timeout=60)

    async def two() -> None:
        await asyncio.sleep(0)
        if how == "group":
            async with asyncio.TaskGroup() as group:
                group.create_task(one())
        elif how == "ends":
            await asyncio.sleep(60)
        else:
            await asyncio.wait([tasks["one"]])  # which does not pass a cancellation on around the cycle

    for name, body in (("one", one), ("two", two)):
        tasks[name] = asyncio.create_task(body(), name=name)
    await settle()
    report = await asyncio.to_thread(report_of, agent)
    waits: dict[str, LocalWait] = {wait.waiter: wait for wait in report.waits}
    if how in ("timeout", "ends"):
        assert not waits
    else:
        assert waits["alone/task:one"].among == (PartyTarget(party=PartyName("alone/task:two")),)
        look = await asyncio.to_thread(look_at, agent, report)
        assert all(seen.unchanged and not seen.doubt for seen in look.parties)
    tasks["one"].cancel()
    await asyncio.wait([tasks["one"]])
