"""What a thread or task drops when it ends may end a wait by its ``__del__``: a way out if it ends by itself."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stilltrue import Agent
from tests.client.look.worlds import Stuck, holders, look_at_caller

FAR_SECONDS = 60.0
_CALLS: dict[int, Any] = {}
_LOCAL = threading.local()
_VARIABLE: contextvars.ContextVar[Any] = contextvars.ContextVar("session")
_GO = threading.Event()


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    _GO.clear()
    yield
    _CALLS.clear()


def calls_and_keeps_it(get: Any) -> None:
    call = _CALLS[0] = get.future(b"")
    call.result()


class Cancels:
    def __del__(self) -> None:
        for call in _CALLS.values():
            call.cancel()


class Counts:
    def __del__(self) -> None:
        len(_CALLS)


def until_it_returns(kind: type) -> None:
    session = kind()  # noqa: F841 - dropped at the end
    _GO.wait(FAR_SECONDS)


def in_thread_local(kind: type) -> None:
    _LOCAL.session = kind()
    _GO.wait(FAR_SECONDS)


def in_context_of_a_task(kind: type) -> None:
    async def main() -> None:
        _VARIABLE.set(kind())
        while not _GO.is_set():
            await asyncio.sleep(0.01)

    asyncio.run(main())


@pytest.mark.parametrize("keep", [until_it_returns, in_thread_local, in_context_of_a_task])
@pytest.mark.parametrize(("kind", "expected"), [(Cancels, True), (Counts, False)])
def test_what_is_dropped_at_the_end_may_end_a_wait(
    alone: Callable[..., Agent], stuck: Stuck, keep: Callable[[type], None], kind: type, expected: bool
) -> None:
    thread = threading.Thread(target=keep, args=(kind,), name="keeper")
    thread.start()
    seen = look_at_caller(alone, stuck, calls_and_keeps_it)
    _GO.set()
    thread.join()
    assert bool(seen.ways_out) is expected, seen.ways_out


def test_a_thread_that_waits_itself_drops_nothing_before(alone: Callable[..., Agent], stuck: Stuck) -> None:
    def waits(get: Any) -> None:
        session = Cancels()  # noqa: F841 - dropped at the end
        get(b"")

    def calls(get: Any) -> None:
        thread = threading.Thread(target=waits, args=(get,), name="keeper")
        thread.start()
        calls_and_keeps_it(get)
        thread.join()

    seen = look_at_caller(alone, stuck, calls, 2)
    assert holders(seen) == ["thread:keeper"]
