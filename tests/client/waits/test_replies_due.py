"""Calls whose reply is due while the party that serves them does not move, as an answer counts them."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from stilltrue import Agent
from stilltrue.protocol.requests.stacks import StandingParty
from stilltrue.runtime.look.standing import unexplained
from stilltrue.runtime.look.standing.replies_due import BLOCKED_IN
from stilltrue.runtime.look.standing.stacks import Stacks
from stilltrue.runtime.look.standing.unexplained import Unexplained
from tests.client.look.worlds import serving
from tests.client.since_311 import timeout

PATIENCE_SECONDS = 20.0
MORE_THAN_A_WINDOW = b"x" * 1_000_000
UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class World:
    """A server whose methods a test gives, and a plain client."""

    def __init__(self, agent: Agent, methods: dict[str, Any], stack: ExitStack) -> None:
        self.agent = agent
        address = stack.enter_context(serving(agent, **methods))
        channel = stack.enter_context(grpc.insecure_channel(address, options=UNLIMITED))
        self.channel: Any = channel
        self._calls = stack.enter_context(ThreadPoolExecutor(4))

    def call(self, method: str) -> None:
        self._calls.submit(self.channel.unary_unary(f"/s/{method}"), b"")

    def standing(self, method: str, *, held: bool = False) -> StandingParty:
        """The party that serves a call of this method, once it is seen to stand still; ``held``: and to wait for another."""
        while True:
            for one in Stacks(self.agent.live, self.agent.parties, 0.05).find(1).parties:
                if f"/{method}#" in one.party and bool(one.held_by) >= held:
                    return one


@pytest.fixture
def world(alone: Callable[..., Agent]) -> Iterator[Callable[..., World]]:
    with ExitStack() as stack:
        yield lambda **methods: World(alone("server"), methods, stack)


def test_a_reply_is_due_while_its_handler_waits_for_nobody_known(world: Callable[..., World]) -> None:
    never = threading.Event()
    served = world(Get=lambda request, _: (never.wait(), request)[1])
    served.call("Get")
    found = served.standing("Get")
    never.set()
    assert (found.unexplained, found.owes_reply) == (True, True)


def test_no_reply_is_due_from_a_handler_whose_wait_has_a_timeout(world: Callable[..., World]) -> None:
    never = threading.Event()
    served = world(Get=lambda request, _: (never.wait(PATIENCE_SECONDS), request)[1])
    served.call("Get")
    found = served.standing("Get")
    never.set()
    assert (found.unexplained, found.owes_reply) == (True, False)


def test_a_stream_of_replies_may_pause(world: Callable[..., World]) -> None:
    never = threading.Event()

    def events(request: bytes, _: Any) -> Iterator[bytes]:
        yield request
        never.wait()

    served = world(Watch=("unary_stream", events))
    replies = served.channel.unary_stream("/s/Watch")(b"")
    assert next(replies) == b""
    found = served.standing("Watch")
    never.set()
    assert (found.unexplained, found.owes_reply) == (True, False)


def test_the_reply_of_a_stream_is_due_while_its_handler_waits_for_a_lock(world: Callable[..., World]) -> None:
    """The stream that holds the lock may pause; the one that waits for it does not."""
    never, lock = threading.Event(), threading.Lock()

    def lease(request: bytes, _: Any) -> Iterator[bytes]:
        with lock:
            yield request
            never.wait()

    served = world(Lease=("unary_stream", lease))
    granted = served.channel.unary_stream("/s/Lease")(b"")
    assert next(granted) == b""
    later = served.channel.unary_stream("/s/Lease")(b"")
    holder = served.standing("Lease")
    waiter = served.standing("Lease", held=True)
    never.set()
    assert (holder.unexplained, holder.owes_reply) == (True, False)
    assert (waiter.held_by, waiter.unexplained, waiter.owes_reply) == ((holder.party,), False, True)
    assert list(later) == [b""]


def test_a_reply_that_the_caller_does_not_read_is_due_and_shows_where_it_was_produced(world: Callable[..., World]) -> None:
    """As when both ends of a stream write and neither reads."""

    def replies_of(request: bytes, _: Any) -> Iterator[bytes]:
        for _count in range(100):
            yield MORE_THAN_A_WINDOW

    served = world(Fetch=("unary_stream", replies_of))
    replies = served.channel.unary_stream("/s/Fetch")(b"")
    found = served.standing("Fetch")
    assert (found.blocked_in, found.unexplained, found.owes_reply) == (BLOCKED_IN, True, True)
    assert __file__ in found.stack[0]
    assert found.stack[0].endswith("replies_of")
    assert sum(1 for _ in replies) == 100


@asynccontextmanager
async def on_a_loop(agent: Agent, method: Any) -> AsyncIterator[Any]:
    """A server of grpc.aio with this method, and a plain channel to it."""
    server = grpc.aio.server(interceptors=[agent.aio_server_interceptor()])
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("s", {"Get": method}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=UNLIMITED) as channel:
        yield channel
    await server.stop(0)


async def standing_on_loop(agent: Agent) -> StandingParty:
    """The party that serves a call, once it is seen to stand still."""
    stacks = Stacks(agent.live, agent.parties, 0.05)
    while True:
        for one in (await asyncio.to_thread(stacks.find, 1)).parties:
            if "/Get#" in one.party and one.unexplained:
                return one


async def test_the_same_on_an_event_loop(alone: Callable[..., Agent]) -> None:
    async def replies_of(request: bytes, _: Any) -> AsyncIterator[bytes]:
        for _count in range(100):
            yield MORE_THAN_A_WINDOW

    agent = alone("server")
    async with on_a_loop(agent, grpc.unary_stream_rpc_method_handler(replies_of)) as channel:
        replies = channel.unary_stream("/s/Get")(b"")
        found = await standing_on_loop(agent)
        while found.blocked_in != BLOCKED_IN:  # it is about to produce the next one
            found = await standing_on_loop(agent)
        assert found.owes_reply
        assert found.stack[0].endswith("replies_of")
        assert sum([1 async for _ in replies]) == 100


@pytest.mark.parametrize("within", ["", "wait_for", "timeout"])
async def test_a_reply_is_due_from_a_task_unless_its_wait_has_a_timeout(alone: Callable[..., Agent], within: str) -> None:
    never = asyncio.Event()

    async def get(request: bytes, _: Any) -> bytes:
        match within:
            case "wait_for":
                await asyncio.wait_for(never.wait(), PATIENCE_SECONDS)
            case "timeout":
                async with timeout(PATIENCE_SECONDS):
                    await never.wait()
            case _:
                await never.wait()
        return request

    agent = alone("server")
    method: Any = grpc.unary_unary_rpc_method_handler(get)
    async with on_a_loop(agent, method) as channel:
        call = channel.unary_unary("/s/Get")(b"")
        found = await standing_on_loop(agent)
        never.set()
        await call
    assert found.owes_reply == (not within)


def test_a_call_counts_once_its_party_has_not_moved_for_long(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    never, failures = threading.Event(), list[str]()
    served = world(Get=lambda request, _: (never.wait(), request)[1])
    counts = Unexplained(Stacks(served.agent.live, served.agent.parties, 0.05), 0.0, failures.append)
    served.call("Get")
    served.standing("Get")
    for _ in range(4):
        _count_again(counts)
    assert counts.calls() == 0
    monkeypatch.setattr(unexplained, "CALL_SECONDS_MIN", 0.0)
    _count_again(counts)
    assert counts.calls() == 1
    never.set()
    while counts.calls():
        _count_again(counts)
    assert failures == []


def test_a_call_counts_that_waits_for_a_party_in_no_known_wait(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own wait is known: it is for a lock."""
    lock, never, taken = threading.Lock(), threading.Event(), threading.Event()

    def hold(request: bytes, _: Any) -> bytes:
        with lock:
            taken.set()
            never.wait()
        return request

    def take(request: bytes, _: Any) -> bytes:
        with lock:
            return request

    monkeypatch.setattr(unexplained, "CALL_SECONDS_MIN", 0.0)
    served = world(Hold=hold, Take=take)
    served.call("Hold")
    taken.wait()
    served.call("Take")
    assert not served.standing("Take").unexplained
    counts = Unexplained(Stacks(served.agent.live, served.agent.parties, 0.05), 0.0, lambda _: None)
    for _ in range(3):
        _count_again(counts)
    never.set()
    assert counts.calls() == 2


def _calls_counted(served: World, monkeypatch: pytest.MonkeyPatch) -> int | None:
    return _counted(served.agent, monkeypatch)[0]


def test_a_stream_that_pauses_counts_once_calls_are_queued_behind_its_pool(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    news = queue.Queue[bytes]()
    watching = threading.Semaphore(0)

    def watch(_: bytes, __: Any) -> Iterator[bytes]:
        watching.release()
        yield news.get()

    def publish(request: bytes, _: Any) -> bytes:
        news.put(request)
        return request

    served = world(Watch=("unary_stream", watch), Publish=publish)
    replies = [served.channel.unary_stream("/s/Watch")(b"") for _ in range(4)]
    for _ in replies:
        assert watching.acquire(timeout=PATIENCE_SECONDS)
    assert _calls_counted(served, monkeypatch) == 0
    served.call("Publish")
    while (counted := _calls_counted(served, monkeypatch)) == 0:
        pass
    for _ in replies:
        news.put(b"")
    assert counted == 4


@pytest.mark.parametrize("wanted", [True, False])
def test_a_call_counts_that_waits_for_the_lock_of_a_party_that_reads_a_stream(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch, wanted: bool
) -> None:
    lock, requests = threading.Lock(), queue.Queue[Any]()

    def feed(stream: Iterator[bytes], _: Any) -> bytes:
        with lock:
            return b"".join(stream)

    def take(request: bytes, _: Any) -> bytes:
        with lock:
            return request

    served = world(Feed=("stream_unary", feed), Take=take)
    fed = served.channel.stream_unary("/s/Feed").future(iter(requests.get, None))
    while not lock.locked():
        pass
    if wanted:
        served.call("Take")
        served.standing("Take", held=True)
    assert _calls_counted(served, monkeypatch) == int(wanted)
    requests.put(None)
    fed.result()


class Actor:
    """Handles messages one by one; to ask another it waits for the reply."""

    def __init__(self) -> None:
        self.inbox: queue.Queue[Any] = queue.Queue()

    def ask(self, other: Actor, seconds: float | None = None) -> Any:
        reply: queue.Queue[Any] = queue.Queue(1)
        other.inbox.put((None, reply))
        return reply.get(timeout=seconds)

    def run(self) -> None:
        while message := self.inbox.get():
            other, reply = message
            reply.put(self.ask(other) if other is not None else None)


def _counted(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> tuple[int | None, int | None]:
    monkeypatch.setattr(unexplained, "CALL_SECONDS_MIN", 0.0)
    counts = Unexplained(Stacks(agent.live, agent.parties, 0.05), 0.0, lambda _: None)
    for _ in range(3):
        threading.Event().wait(0.1)
        _count_again(counts)
    return counts.calls(), counts.waits()


def test_actors_that_wait_for_each_others_replies_count(alone: Callable[..., Agent], monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = Actor(), Actor()
    one.inbox.put((other, queue.Queue()))
    other.inbox.put((one, queue.Queue()))
    for actor in (one, other):
        threading.Thread(target=actor.run, daemon=True).start()
    assert _counted(alone("actors"), monkeypatch) == (0, 2)
    asked = [actor.inbox.get() for actor in (one, other)]
    for actor, (_, reply) in zip((one, other), asked, strict=True):
        reply.put(None)
        actor.inbox.put(None)


def test_idle_threads_do_not_count(alone: Callable[..., Agent], monkeypatch: pytest.MonkeyPatch) -> None:
    given, stop, idle = queue.Queue[Any](), threading.Event(), Actor()

    def take_from_its_own() -> None:
        own: queue.Queue[Any] = queue.Queue()
        subscribers.append(own)
        while own.get():
            pass

    def subscribe() -> None:
        take_from_its_own()

    subscribers: list[queue.Queue[Any]] = []
    for idles in (given.get, stop.wait, idle.run, subscribe, take_from_its_own):
        threading.Thread(target=idles, daemon=True).start()
    with ThreadPoolExecutor(2) as pool:
        pool.submit(int).result()
        assert _counted(alone("idle"), monkeypatch) == (0, 0)
    stop.set()
    for one in (given, idle.inbox, *subscribers):
        one.put(None)


def test_a_lock_that_a_suspended_generator_holds_counts(alone: Callable[..., Agent], monkeypatch: pytest.MonkeyPatch) -> None:
    lock = threading.Lock()

    def inside() -> Iterator[None]:
        with lock:
            yield

    def take() -> None:
        with lock:
            pass

    held: Any = inside()
    next(held)
    threading.Thread(target=take, daemon=True).start()
    assert _counted(alone("locks"), monkeypatch) == (0, 1)
    held.close()


def test_a_lock_whose_holder_does_not_move_counts(alone: Callable[..., Agent], monkeypatch: pytest.MonkeyPatch) -> None:
    lock, never, taken = threading.Lock(), threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            taken.set()
            never.wait()

    def take() -> None:
        with lock:
            pass

    threading.Thread(target=hold, daemon=True).start()
    assert taken.wait(PATIENCE_SECONDS)
    threading.Thread(target=take, daemon=True).start()
    assert _counted(alone("locks"), monkeypatch) == (0, 1)
    never.set()


def _count_again(counts: Unexplained) -> None:
    counts._not_before = 0.0
    counts.count()


def test_no_reply_is_due_from_a_handler_whose_wait_for_a_pool_has_a_timeout(world: Callable[..., World]) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    engine = sqlalchemy.create_engine(
        "sqlite://", poolclass=sqlalchemy.pool.QueuePool, pool_size=1, max_overflow=0, pool_timeout=PATIENCE_SECONDS
    )
    taken = engine.connect()

    def query(request: bytes, _: Any) -> bytes:
        with engine.connect():
            return request

    served = world(Get=query)
    served.call("Get")
    found = served.standing("Get")
    taken.close()
    assert found.owes_reply is False
