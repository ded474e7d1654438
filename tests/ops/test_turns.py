"""Coroutines with long steps let the event loop run others between any two of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from detector.ops.turns import Turns


async def _rounds(counted: list[int]) -> None:
    """Count the rounds of the event loop."""
    while True:
        counted[0] += 1
        await asyncio.sleep(0)


async def _steps(count: int, note: Callable[[], None]) -> int:
    for _ in range(count):
        note()
        await asyncio.sleep(0)
    return count


async def test_each_step_has_its_own_iteration_of_the_loop() -> None:
    turns, rounds, seen = Turns(), [0], list[int]()
    counting = asyncio.create_task(_rounds(rounds))
    given = await asyncio.gather(*(turns.run(_steps(3, lambda: seen.append(rounds[0]))) for _ in range(20)))
    counting.cancel()
    assert given == [3] * 20
    assert len(seen) == len(set(seen)) == 60


async def test_steps_of_coroutines_that_are_ready_alternate() -> None:
    turns, seen = Turns(), list[str]()
    await asyncio.gather(*(turns.run(_steps(3, lambda name=name: seen.append(name))) for name in "ab"))  # type: ignore[misc]
    assert seen == ["a", "b"] * 3


async def test_a_waiting_coroutine_delays_no_other() -> None:
    turns, open_now = Turns(), asyncio.Event()

    async def waits() -> str:
        await open_now.wait()
        return "opened"

    waiting = asyncio.create_task(turns.run(waits()))
    assert await turns.run(_steps(5, lambda: None)) == 5
    open_now.set()
    assert await waiting == "opened"


async def test_results_and_exceptions_are_passed_on() -> None:
    turns = Turns()

    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("of its own")

    with pytest.raises(ValueError, match="of its own"):
        await turns.run(fails())
    assert await turns.run(_steps(1, lambda: None)) == 1


@pytest.mark.parametrize("rounds", range(1, 9))
async def test_a_cancellation_at_any_moment_leaves_the_turns_to_others(rounds: int) -> None:
    turns, cleaned = Turns(), list[bool]()

    async def cleans_up() -> None:
        try:
            await _steps(1000, lambda: None)
        finally:
            cleaned.append(True)
            await asyncio.sleep(0)

    ones = [asyncio.create_task(turns.run(cleans_up())) for _ in range(3)]
    for _ in range(rounds):
        await asyncio.sleep(0)
    for one in ones:
        one.cancel()
    ended = await asyncio.gather(*ones, return_exceptions=True)
    assert all(isinstance(each, asyncio.CancelledError) for each in ended)
    assert await turns.run(_steps(2, lambda: None)) == 2


async def test_a_timeout_may_expire_while_waiting_for_a_turn() -> None:
    turns, blocked = Turns(), asyncio.Event()
    await turns.begin()  # and never ends

    async def in_time() -> str:
        try:
            async with asyncio.timeout(0.01):
                await turns.run(_steps(1, blocked.set))
        except TimeoutError:
            return "too late"
        return "in time"

    assert await in_time() == "too late"
    assert not blocked.is_set()


async def test_a_coroutine_that_swallows_its_cancellation_while_waiting_returns() -> None:
    turns, waits = Turns(), asyncio.Event()

    async def swallows() -> str:
        try:
            await asyncio.sleep(0)
            waits.set()
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            return "cleaned up"
        return "not cancelled"

    one = asyncio.create_task(turns.run(swallows()))
    await waits.wait()
    await turns.begin()
    one.cancel()
    assert await one == "cleaned up"
