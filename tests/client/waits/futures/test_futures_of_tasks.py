"""Tasks that wait for a future which another task is to complete, and who may cancel it meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.client.look.worlds import look_at, of
from tests.client.waits.conftest import Front, is_unseen
from tests.client.waits.resolvers.test_locks_of_tasks import Body, Loop, waits_of

FAR_SECONDS = 600.0


async def _owes(loop: Any) -> None:
    loop.future = asyncio.get_running_loop().create_future()
    loop.future.set_result(await asyncio.sleep(FAR_SECONDS, 1))


async def _owes_unless_done(loop: Any) -> None:
    loop.future = asyncio.get_running_loop().create_future()
    await asyncio.sleep(FAR_SECONDS)
    if not loop.future.done():
        loop.future.set_result(1)


async def _owes_to_its_mailbox(loop: Any) -> None:
    mailbox: asyncio.Queue[Any] = asyncio.Queue()
    loop.future = asyncio.get_running_loop().create_future()
    mailbox.put_nowait((b"", asyncio.get_running_loop().create_future()))
    mailbox.put_nowait((b"", loop.future))
    while True:
        _, reply = await mailbox.get()
        await asyncio.sleep(FAR_SECONDS)
        reply.set_result(1)


async def _awaits(loop: Any) -> None:
    await loop.future


async def _awaits_shielded(loop: Any) -> None:
    await asyncio.shield(loop.future)


async def _owes_another(loop: Any) -> None:
    loop.other = asyncio.get_running_loop().create_future()
    loop.other.set_result(await asyncio.sleep(FAR_SECONDS, 1))


async def _gathers(loop: Any) -> None:
    await asyncio.gather(loop.future, loop.other)


async def _gathers_outcomes(loop: Any) -> None:
    await asyncio.gather(loop.future, loop.other, return_exceptions=True)


async def _gathers_one_of_anybodys(loop: Any) -> None:
    await asyncio.gather(loop.future, asyncio.get_running_loop().create_future())


async def _is_told(loop: Any) -> None:
    loop.future.add_done_callback(lambda _: None)
    await loop.future


@pytest.mark.parametrize(
    ("bodies", "expected"),
    [
        ([_owes, _awaits], {"t1": ["task:t0"]}),
        ([_owes_to_its_mailbox, _awaits], {"t1": ["task:t0"]}),
        ([_owes, _awaits_shielded, _awaits_shielded], {"t1": ["task:t0"], "t2": ["task:t0"]}),
        # whoever awaits it unshielded, and is cancelled, cancels it
        ([_owes, _awaits, _awaits], {"t1": ["task:t0", "task:t2"], "t2": ["task:t0", "task:t1"]}),
        ([_owes, _awaits, _awaits_shielded], {"t1": ["task:t0"], "t2": ["task:t0", "task:t1"]}),
        ([_owes, _owes_another, _gathers], {"t2": ["task:t0", "task:t1"]}),
        ([_owes, _owes_another, _gathers_outcomes], {"t2": ["task:t0"]}),
    ],
    ids=["future", "mailbox", "shielded", "two", "shielded_and_not", "gathered", "all_gathered"],
)
def test_a_future_waits_for_the_task_that_is_to_complete_it(front: Front, bodies: list[Body], expected: Any) -> None:
    loop = Loop(front)
    loop.run(*bodies)
    report = loop.report(*expected)
    assert {task: found for task in expected for found in waits_of(report, task)} == expected
    assert all(one.unchanged and not one.doubt for one in look_at(front.agent, report).parties)
    loop.stop()


@pytest.mark.parametrize("bodies", [[_owes_unless_done, _awaits], [_owes, _is_told]], ids=["unless_done", "callback"])
def test_of_a_future_that_others_may_complete_nothing_is_known(front: Front, bodies: list[Body]) -> None:
    loop = Loop(front)
    loop.run(*bodies)
    assert is_unseen(front.report_when_still("loop"), "task:t1")
    loop.stop()


@pytest.mark.parametrize(
    "bodies",
    [[_owes, _owes_another, _gathers_one_of_anybodys], [_owes, _owes_another, _gathers, _gathers]],
    ids=["anybodys", "twice"],
)
def test_nor_is_of_gathered_futures_that_others_may_complete_or_cancel(front: Front, bodies: list[Body]) -> None:
    loop = Loop(front)
    loop.run(*bodies)
    assert is_unseen(front.report_when_still("loop"), "task:t2")
    loop.stop()


def test_a_timer_that_cancels_the_future_is_a_way_out(front: Front) -> None:
    async def owes(loop: Any) -> None:
        loop.future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(FAR_SECONDS, loop.future.cancel)
        loop.future.set_result(await asyncio.sleep(FAR_SECONDS, 1))

    loop = Loop(front)
    loop.run(owes, _awaits)
    seen = of(look_at(front.agent, loop.report("t1")), "front/task:t1")
    assert seen.deadline is not None, [one.text for one in seen.ways_out]
    loop.stop()


@pytest.mark.parametrize("waits", [_awaits, _awaits_shielded])
def test_a_task_that_cancels_the_future_is_a_way_out(front: Front, waits: Body) -> None:
    async def sweeps(loop: Any) -> None:
        await asyncio.sleep(FAR_SECONDS)
        loop.future.cancel()

    loop = Loop(front)
    loop.run(_owes, waits, sweeps)
    seen = of(look_at(front.agent, loop.report("t1")), "front/task:t1")
    assert any(one.party == "front/task:t2" or "t2" in one.text for one in seen.ways_out), seen
    loop.stop()
