"""A task in a variable that its frame never uses again cannot be ended through that; the tests step coroutines by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import CellType
from typing import Any

import pytest

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import frame_of
from stilltrue.runtime.look.ways_out.forgotten_tasks import without_forgotten_tasks

_Body = Callable[[], Coroutine[Any, Any, None]]


async def _job() -> None:
    await asyncio.sleep(60)


async def in_a_variable() -> None:
    task = asyncio.create_task(_job())
    print(task)
    while True:
        await asyncio.sleep(60)


async def the_last_of_a_loop() -> None:
    for coroutine in (_job(), _job()):
        task = asyncio.create_task(coroutine)
        print(task)
    while True:
        await asyncio.sleep(60)


async def in_a_list() -> None:
    tasks = [asyncio.create_task(_job()) for _ in range(2)]
    print(tasks)
    while True:
        await asyncio.sleep(60)


async def and_returns() -> None:
    task = asyncio.create_task(_job())
    await asyncio.sleep(60)
    del task


async def and_returns_without_another_word() -> None:
    task = asyncio.create_task(_job())
    print(task)
    await asyncio.sleep(60)


async def read_later() -> None:
    task = asyncio.create_task(_job())
    while True:
        await asyncio.sleep(60)
        task.cancel()


async def read_once_it_is_interrupted() -> None:
    task = asyncio.create_task(_job())
    try:
        while True:
            await asyncio.sleep(60)
    finally:
        task.cancel()


async def read_by_an_inner_function() -> None:
    task = asyncio.create_task(_job())

    def stop() -> None:
        task.cancel()

    while True:
        await asyncio.sleep(60)
        print(stop)


async def read_with_all_variables() -> None:
    task = asyncio.create_task(_job())
    print(task)
    while True:
        await asyncio.sleep(60)
        locals()


async def in_a_list_with_other_things() -> None:
    tasks = [asyncio.create_task(_job()), "name"]
    print(tasks)
    while True:
        await asyncio.sleep(60)


async def in_two_variables() -> None:
    task = other = asyncio.create_task(_job())
    print(task)
    while True:
        await asyncio.sleep(60)
        other.cancel()


async def set_anew() -> None:
    task = None
    while True:
        print(task)
        task = asyncio.create_task(_job())
        await asyncio.sleep(60)


def _within(one: Any) -> list[Any]:
    return [one.cell_contents] if isinstance(one, CellType) else one if isinstance(one, list) else [one]


async def _holds_tasks(body: _Body, *, may_return: bool) -> bool:
    task = asyncio.create_task(body())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    coroutine = task.get_coro()
    frame = frame_of(coroutine)
    assert frame is not None
    held = without_forgotten_tasks(frame, compat.held_by_coroutine(coroutine), may_return=may_return)
    found = any(isinstance(each, asyncio.Task) for one in held for each in _within(one))
    for one in asyncio.all_tasks() - {asyncio.current_task()}:
        one.cancel()
    return found


@pytest.mark.parametrize("body", [in_a_variable, the_last_of_a_loop, in_a_list])
def test_a_task_that_is_never_used_again_is_forgotten(body: _Body) -> None:
    assert not asyncio.run(_holds_tasks(body, may_return=False))


@pytest.mark.parametrize(
    "body",
    [
        and_returns,
        read_later,
        read_once_it_is_interrupted,
        read_by_an_inner_function,
        read_with_all_variables,
        in_a_list_with_other_things,
        in_two_variables,
        set_anew,
    ],
)
def test_a_task_that_may_be_used_again_is_held(body: _Body) -> None:
    assert asyncio.run(_holds_tasks(body, may_return=True))


def test_a_frame_that_returns_forgets_a_task_only_if_all_tasks_are_cancelled_then() -> None:
    assert asyncio.run(_holds_tasks(and_returns_without_another_word, may_return=False))
    assert not asyncio.run(_holds_tasks(and_returns_without_another_word, may_return=True))
