"""Who waits for what it has registered under a key waits for others, even if these have ended; so does the last consumer."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from stilltrue import Agent
from tests.client.look.worlds import look_at, report_of
from tests.client.waits.test_task_waits import Main, running_as_main_task, waits_of

FAR_SECONDS = 600.0
PATIENCE_SECONDS = 20.0


class Client:
    """Its requests, by number, and the task that reads the answers."""

    def __init__(self) -> None:
        self.pending: dict[Any, Any] = {}
        self.numbers = iter(range(7, 100))
        self.stopped = asyncio.Event()

    async def read(self) -> None:
        raise ConnectionError

    async def read_later(self) -> None:
        await asyncio.sleep(FAR_SECONDS)
        self.pending.popitem()[1].set_result(b"")

    async def ask(self) -> bytes:
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.pending[next(self.numbers)] = answer
        return await answer

    async def ask_by_event(self) -> None:
        done = self.pending[next(self.numbers)] = asyncio.Event()
        await done.wait()

    async def ask_by_queue(self) -> None:
        answers = self.pending[next(self.numbers)] = asyncio.Queue[bytes]()
        await answers.get()

    async def serve(self) -> None:
        self.pending["stop"] = asyncio.Event()
        await self.pending["stop"].wait()

    async def serve_until_stopped(self) -> None:
        await self.stopped.wait()


def _named(run: Callable[[Client], Any], read: Callable[[Client], Any] = Client.read) -> Main:
    async def main() -> None:
        client = Client()
        reader = asyncio.create_task(read(client), name="reader")
        asking = asyncio.current_task()
        assert asking is not None
        asking.set_name("asking")
        del asking
        with suppress(asyncio.CancelledError):
            await run(client)
        reader.cancel()

    return main


async def _gathers(client: Client) -> None:
    await asyncio.gather(client.ask(), client.ask())


def _waits(agent: Agent) -> dict[str, set[str]]:
    agent._observer.searchers.search(time.time())
    return waits_of(report_of(agent))


def _wait_until_seen(agent: Agent, name: str) -> dict[str, set[str]]:
    until = time.monotonic() + PATIENCE_SECONDS
    while name not in (found := _waits(agent)):
        assert time.monotonic() < until, found
        time.sleep(0.1)
    return found


@pytest.mark.parametrize("ask", [Client.ask, Client.ask_by_event, Client.ask_by_queue])
def test_who_awaits_what_it_has_registered_waits_for_itself_once_nobody_answers(
    alone: Callable[..., Agent], ask: Callable[[Client], Any]
) -> None:
    agent = alone("here")
    with running_as_main_task(_named(ask)):
        assert _wait_until_seen(agent, "asking")["asking"] == {"asking"}
        seen = look_at(agent, report_of(agent)).parties
        assert [(one.unchanged, one.ways_out, one.doubt) for one in seen] == [(True, (), "")]


def test_who_gathers_such_requests_waits_for_them(alone: Callable[..., Agent]) -> None:
    agent = alone("here")
    with running_as_main_task(_named(_gathers)):
        found = _wait_until_seen(agent, "asking")
        assert len(found) == 3


async def _asks_beside_a_timer(client: Client) -> None:
    asyncio.get_running_loop().call_later(FAR_SECONDS, client.pending.clear)
    await client.ask()


@pytest.mark.parametrize(
    "main",
    [
        _named(Client.ask, Client.read_later),
        _named(Client.serve),
        _named(Client.serve_until_stopped),
        _named(_asks_beside_a_timer),
    ],
    ids=["answered later", "a stop under a name", "a stop", "a timer"],
)
def test_who_may_be_answered_or_only_waits_for_a_stop_does_not(alone: Callable[..., Agent], main: Main) -> None:
    agent = alone("here")
    with running_as_main_task(main):
        for _ in range(6):
            assert _waits(agent).get("asking", {"reader"}) == {"reader"}
            time.sleep(0.1)


async def _takes_items() -> None:
    queue = asyncio.Queue[int]()
    while item := await queue.get():
        print(item)


async def _blocks_for_good() -> None:
    await asyncio.Queue[int]().get()


async def _takes_items_until_interrupted() -> None:
    queue = asyncio.Queue[int]()
    with suppress(KeyboardInterrupt):
        print(await queue.get())


@contextmanager
def _running_main_task(main: Main, *, daemon: bool) -> Iterator[None]:
    """Run it as the main task of a loop in a thread."""
    begun, tasks = threading.Event(), list[Any]()

    async def consumer() -> None:
        tasks.append((asyncio.get_running_loop(), asyncio.current_task()))
        tasks[0][1].set_name("consumer")
        begun.set()
        with suppress(asyncio.CancelledError):
            await main()

    thread = threading.Thread(target=lambda: asyncio.run(consumer()), daemon=daemon)
    thread.start()
    begun.wait()
    loop, task = tasks.pop()
    cancel = task.cancel
    del task
    kept = [cancel]
    try:
        yield
    finally:
        loop.call_soon_threadsafe(kept.pop())
        thread.join()


def test_the_last_consumer_of_a_program_waits_for_itself(alone: Callable[..., Agent]) -> None:
    agent = alone("here")
    with _running_main_task(_takes_items, daemon=False):
        assert _wait_until_seen(agent, "consumer")["consumer"] == {"consumer"}


@pytest.mark.parametrize(
    ("main", "daemon"), [(_takes_items, True), (_takes_items_until_interrupted, False), (_blocks_for_good, False)]
)
def test_one_for_which_the_program_does_not_wait_or_until_ctrl_c_parks(
    alone: Callable[..., Agent], main: Main, daemon: bool
) -> None:
    agent = alone("here")
    with _running_main_task(main, daemon=daemon):
        for _ in range(6):
            assert "consumer" not in _waits(agent)
            time.sleep(0.1)
