"""The other end of a stream on an event loop waits for the tasks that can reach the call, if only suspended tasks can."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any
from weakref import WeakSet

import grpc
import grpc.aio
import pytest

from stilltrue import Agent
from stilltrue.protocol.report import CallTarget, PartyTarget, Report, next_request_of
from stilltrue.runtime.waits.reachability import task_waits
from stilltrue.runtime.waits.streams import task_feeders
from tests.client.look.worlds import report_of, report_when, serving

FAR_SECONDS = 600.0
PATIENCE_SECONDS = 60.0
"""In a process that has run many tests, a proof may take ten seconds."""
Chat = Callable[[Any], Awaitable[None]]
_kept: list[Any] = []


async def read(call: Any) -> None:
    """The reader would write the next request itself."""
    await call.write(await call.read())


async def iterate(call: Any) -> None:
    """As ``read``, by iterating over the replies."""
    async for reply in call:
        await call.write(reply)


async def upload(call: Any) -> None:
    """The task that would end the stream awaits the only reply."""
    await call


async def feed(call: Any) -> None:
    """Another task writes what the reader passes on to it."""
    replies: asyncio.Queue[bytes] = asyncio.Queue()

    async def write() -> None:
        while True:
            await call.write(await replies.get())

    feeding = asyncio.create_task(write(), name="writer")
    async for reply in call:
        await replies.put(reply)
    await feeding


async def write_later(call: Any) -> None:
    """Another task writes a request later."""

    async def write() -> None:
        await asyncio.sleep(FAR_SECONDS)
        await call.write(b"")

    _kept.append(asyncio.create_task(write(), name="writer"))
    await call.read()


async def by_a_timer(call: Any) -> None:
    """A timer writes a request later."""
    loop = asyncio.get_running_loop()
    loop.call_later(FAR_SECONDS, lambda: loop.create_task(call.write(b"")))
    await call.read()


async def by_a_module(call: Any) -> None:
    """A module has the call."""
    _kept.append(call)
    await call.read()


async def by_a_thread(call: Any) -> None:
    """A thread has the call."""
    threading.Thread(target=lambda call: _GO.wait(PATIENCE_SECONDS), args=(call,), daemon=True).start()
    await call.read()


async def weakly(call: Any) -> None:
    """The call can also be reached through a weak reference of the application."""
    _weak.add(call)
    await call.read()


async def generate(method: Any) -> None:
    """A generator sends what the reader of the replies passes on."""
    replies: asyncio.Queue[bytes] = asyncio.Queue()
    async for reply in method(_all_of(replies)):
        await replies.put(reply)


async def generate_in_two(method: Any) -> None:
    """As ``generate``, with a generator that passes on what another yields."""
    replies: asyncio.Queue[bytes] = asyncio.Queue()

    async def requests() -> AsyncIterator[bytes]:
        async for reply in _all_of(replies):
            yield reply

    async for reply in method(requests()):
        await replies.put(reply)


async def echo(method: Any) -> None:
    """A generator reads the replies itself."""

    async def requests() -> AsyncIterator[bytes]:
        yield await call.read()

    call = method(requests())
    await call.initial_metadata()


async def generate_as_well(method: Any) -> None:
    """As ``generate``, but another task has the queue, too."""
    replies: asyncio.Queue[bytes] = asyncio.Queue()

    async def put_later() -> None:
        await asyncio.sleep(FAR_SECONDS)
        await replies.put(b"")

    _kept.append(asyncio.create_task(put_later(), name="other"))
    async for reply in method(_all_of(replies)):
        await replies.put(reply)


async def generate_from_a_module(method: Any) -> None:
    """As ``generate``, but a module has the queue, too."""
    replies: asyncio.Queue[bytes] = asyncio.Queue()
    _kept.append(replies)
    async for reply in method(_all_of(replies)):
        await replies.put(reply)


async def generate_after_a_pause(method: Any) -> None:
    """A generator of the reader's is paused, and would put into the queue once it is closed."""
    replies: asyncio.Queue[bytes] = asyncio.Queue()

    async def put_at_end() -> AsyncIterator[None]:
        try:
            yield
        finally:
            replies.put_nowait(b"")

    paused = put_at_end()
    await anext(paused)
    async for reply in method(_all_of(replies)):
        await replies.put(reply)


async def _all_of(replies: asyncio.Queue[bytes]) -> AsyncIterator[bytes]:
    while True:
        yield await replies.get()


_GENERATING = {generate, generate_in_two, echo, generate_as_well, generate_from_a_module, generate_after_a_pause}
_GO = threading.Event()
_weak: WeakSet[Any] = WeakSet()


def _writers(report: Report) -> set[str]:
    """The names of the tasks that may write the next request, as reported."""
    streams = {next_request_of(report.process.instance, call.number) for call in report.made}
    return {hold.party.rpartition("task:")[2] for hold in report.holds if hold.resource in streams}


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proofs are tried often, and take as long as they need: the tests share a large process."""
    for module in (task_feeders, task_waits):
        monkeypatch.setattr(module, "AGAIN_SECONDS_MAX", task_waits.AGAIN_SECONDS)
        monkeypatch.setattr(module, "LOOK_SECONDS_MAX", PATIENCE_SECONDS)
        monkeypatch.setattr(module, "SHARE_OF_TIME", 1.0)


@pytest.fixture
def chatting(alone: Callable[..., Agent]) -> Iterator[Callable[[Chat], Agent]]:
    """Starts a client that runs ``chat`` with a call whose server answers only once the test is over."""
    client, server = alone("client"), alone("server")
    _GO.clear()

    def answer(requests: Iterator[bytes], _: Any) -> Iterator[bytes]:
        assert _GO.wait(PATIENCE_SECONDS)
        yield b""

    def take(requests: Iterator[bytes], _: Any) -> bytes:
        return b"".join(requests)

    async def run(address: str, chat: Chat) -> None:
        running.append((asyncio.get_running_loop(), asyncio.current_task()))
        with suppress(asyncio.CancelledError):
            async with grpc.aio.insecure_channel(address) as plain:
                channel = client.channel(plain)
                method: Any = channel.stream_unary("/s/Upload") if chat is upload else channel.stream_stream("/s/Chat")
                await chat(method if chat in _GENERATING else method())

    def start(chat: Chat) -> Agent:
        thread = threading.Thread(target=asyncio.run, args=(run(address, chat),), daemon=True)
        threads.append(thread)
        thread.start()
        return client

    running, threads = list[tuple[asyncio.AbstractEventLoop, Any]](), list[threading.Thread]()
    with serving(server, Chat=("stream_stream", answer), Upload=("stream_unary", take)) as address:
        yield start
        for loop, task in running:
            loop.call_soon_threadsafe(task.cancel)
        _GO.set()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive()
    _kept.clear()


def _search_and_find(agent: Agent) -> Callable[[Report], bool]:
    def found(report: Report) -> bool:
        time.sleep(task_waits.AGAIN_SECONDS)
        agent._observer.searchers.search(time.time())
        return bool(_writers(report))

    return found


@pytest.mark.parametrize(
    ("chat", "writers"),
    [(read, 1), (iterate, 1), (upload, 1), (feed, 2), (write_later, 2)],
    ids=["read", "iterate", "upload", "feed", "write_later"],
)
def test_the_next_request_comes_from_the_tasks_that_can_reach_the_call(
    chatting: Callable[[Chat], Agent], chat: Chat, writers: int
) -> None:
    client = chatting(chat)
    found = _writers(report_when(client, _search_and_find(client), PATIENCE_SECONDS))
    assert len(found) == writers
    assert ("writer" in found) == (writers == 2)


@pytest.mark.parametrize(
    "chat",
    [by_a_timer, by_a_module, by_a_thread, weakly, generate_from_a_module, generate_after_a_pause],
    ids=lambda chat: chat.__name__,
)
def test_a_request_that_others_can_provide_may_come_from_anybody(chatting: Callable[[Chat], Agent], chat: Chat) -> None:
    client = chatting(chat)
    report = report_when(client, lambda report: bool(report.waits))
    for _ in range(8):
        time.sleep(task_waits.AGAIN_SECONDS)
        client._observer.searchers.search(time.time())
        report = report_of(client)
        assert not _writers(report)
    assert report.waits


def _waits_of_writers(report: Report) -> list[set[str]]:
    """The parties for which each task that may write the next request waits."""
    writers = _writers(report)
    mine = (wait for wait in report.waits if wait.waiter.rpartition("task:")[2] in writers)
    return [{one.party.rpartition("task:")[2] for one in wait.among if isinstance(one, PartyTarget)} for wait in mine]


@pytest.mark.parametrize("chat", [generate, generate_in_two, generate_as_well], ids=lambda chat: chat.__name__)
def test_a_generator_of_requests_waits_for_the_tasks_that_can_provide_the_next(
    chatting: Callable[[Chat], Agent], chat: Chat
) -> None:
    client = chatting(chat)
    search = _search_and_find(client)
    report = report_when(client, lambda report: search(report) and bool(_waits_of_writers(report)), PATIENCE_SECONDS)
    (among,) = _waits_of_writers(report)
    assert not among & _writers(report)
    assert ("other" in among) == (chat is generate_as_well)
    assert len(among) == (2 if chat is generate_as_well else 1)


def test_a_generator_of_requests_that_reads_the_replies_waits_for_the_call(chatting: Callable[[Chat], Agent]) -> None:
    client = chatting(echo)
    report = report_when(client, lambda report: bool(_writers(report)) and bool(report.waits))
    (wait,) = report.waits
    assert {wait.waiter.rpartition("task:")[2]} == _writers(report)
    assert wait.among == tuple(CallTarget(number=call.number) for call in report.made)
