"""anyio's limiters: who waits for a token waits for a task that has one, unless another may free it or add one."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import anyio
import pytest

from tests.client.look.worlds import look_at, of
from tests.client.waits.conftest import Front
from tests.client.waits.resolvers.test_locks_of_tasks import Body, Loop, waits_of

FAR_SECONDS = 60.0
_SHOWS_NAMES = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="on Python 3.10 less is known of what a frame may still use"
)


async def _has_the_token(loop: Any) -> None:
    loop.limiter, loop.holder = anyio.CapacityLimiter(1), asyncio.current_task()
    async with loop.limiter:
        await asyncio.sleep(FAR_SECONDS)


async def _needs_one(loop: Any) -> None:
    async with loop.limiter:
        pass


async def _releases_it(loop: Any) -> None:
    await asyncio.sleep(FAR_SECONDS)
    loop.limiter.release_on_behalf_of(loop.holder)


async def _releases_it_by_a_timer(loop: Any) -> None:
    asyncio.get_running_loop().call_later(FAR_SECONDS, loop.limiter.release_on_behalf_of, loop.holder)


async def _adds_one(loop: Any) -> None:
    await asyncio.sleep(FAR_SECONDS)
    loop.limiter.total_tokens = 2


async def _takes_its_turn(loop: Any) -> None:
    await asyncio.sleep(FAR_SECONDS)
    async with loop.limiter:
        assert loop.limiter.statistics().borrowed_tokens


@pytest.mark.parametrize(
    ("beside", "expected"),
    [
        (_releases_it, True),
        (_releases_it_by_a_timer, True),
        (_adds_one, True),
        pytest.param(_takes_its_turn, False, marks=_SHOWS_NAMES),
    ],
)
def test_who_frees_the_token_of_another_or_adds_one_is_a_way_out(front: Front, beside: Body, expected: bool) -> None:
    loop = Loop(front)
    loop.run(_has_the_token, _needs_one, beside)
    report = loop.report("t1")
    assert waits_of(report, "t1") == [["task:t0"]]
    seen = of(look_at(front.agent, report), "front/task:t1")
    assert seen.unchanged
    beside_it = [one.text for one in seen.ways_out if "task t2" in one.text or "timer" in one.text]
    assert bool(beside_it) is expected, seen
    loop.stop()
