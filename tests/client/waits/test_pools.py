"""A party that waits for a pooled connection waits for its holders, with each library; if they are unknown, for no party."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import aiohttp
import httpx
import pytest
import redis
import redis.asyncio
import sqlalchemy
import urllib3

from stilltrue import Agent
from stilltrue.runtime.waits.process_view import LiveProcessView
from stilltrue.runtime.waits.wait import EndedHolder, SeenWait

SIZE = 2
SECONDS_MAX = 30.0
BODY = b"x" * (1 << 24)
"""Larger than any buffer: the response is unfinished until it is read."""
Take = Callable[[], Any]


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(BODY)))
            self.end_headers()
            try:
                self.wfile.write(BODY)
            except OSError:  # the client is gone
                self.close_connection = True

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    monkeypatch.setattr("stilltrue.runtime.waits.process_view.WALK_SECONDS_MAX", 5.0)  # stuck threads of earlier tests remain
    agent = Agent("shop", instance="shop", enabled=False)
    yield agent
    agent.close()


# -- pools of threads --------------------------------------------------------------------------------------------------


def of_sqlalchemy(port: int, seconds: float | None, size: int) -> Take:
    engine = sqlalchemy.create_engine(
        "sqlite://",
        poolclass=sqlalchemy.QueuePool,
        pool_size=size,
        max_overflow=0,
        pool_timeout=seconds,
        connect_args={"check_same_thread": False},
    )
    return engine.connect


class Connection(redis.connection.AbstractConnection):
    """A connection to nowhere."""

    def connect(self) -> None:
        pass

    def disconnect(self, *_: Any, **__: Any) -> None:
        pass

    def can_read(self, *_: Any) -> bool:
        return False

    def should_reconnect(self) -> bool:
        return False

    def repr_pieces(self) -> list[tuple[str, Any]]:
        return []

    def _connect(self) -> Any:
        pass

    def _host_error(self) -> str:
        return ""

    def _error_message(self, exception: Any) -> str:
        return ""


def of_redis(port: int, seconds: float | None, size: int) -> Take:
    make: Any = redis.BlockingConnectionPool
    pool = make(max_connections=size, timeout=seconds, connection_class=Connection)
    take: Take = pool.get_connection
    return take


def of_httpx(port: int, seconds: float | None, size: int) -> Take:
    client = httpx.Client(limits=httpx.Limits(max_connections=size), timeout=httpx.Timeout(None, pool=seconds), trust_env=False)
    return lambda: client.send(client.build_request("GET", f"http://127.0.0.1:{port}/"), stream=True)


def of_urllib3(port: int, seconds: float | None, size: int) -> Take:
    pool: Any = urllib3.HTTPConnectionPool("127.0.0.1", port, maxsize=size, block=True)
    return lambda: pool.urlopen("GET", "/", preload_content=False, pool_timeout=seconds)


POOLS = (of_sqlalchemy, of_redis, of_httpx, of_urllib3)
Make = Callable[[int, float | None, int], Take]


def nested(take: Take, taken: threading.Semaphore, go_on: threading.Event, kept: list[Any]) -> None:
    """Take one share, then another."""
    first = take()
    taken.release()
    go_on.wait()
    kept.append(take())
    del first


def start(take: Take) -> tuple[set[int], list[Any]]:
    """Start as many threads as there are shares; each has one and waits for another. Returns their identities."""
    taken, go_on, kept = threading.Semaphore(0), threading.Event(), list[Any]()
    threads = [threading.Thread(target=nested, args=(take, taken, go_on, kept), daemon=True) for _ in range(SIZE)]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert taken.acquire(timeout=SECONDS_MAX)
    go_on.set()
    return {thread.ident or 0 for thread in threads}, kept


def waits_of(agent: Agent, idents: set[int]) -> list[SeenWait]:
    view = LiveProcessView(agent.parties, time.time())
    found = [view.wait_of(view.stacks()[ident]) for ident in idents if ident in view.stacks()]
    return [wait for wait in found if wait is not None]


def until(found: Callable[[], list[SeenWait]], so: Callable[[list[SeenWait]], bool]) -> list[SeenWait]:
    end = time.monotonic() + SECONDS_MAX
    while not so(waits := found()):
        assert time.monotonic() < end, waits
        time.sleep(0.02)
    return waits


@pytest.mark.parametrize("make", POOLS)
def test_holders_of_connections_that_want_another_wait_for_each_other(make: Make, agent: Agent, port: int) -> None:
    idents, _ = start(make(port, None, SIZE))
    waits = until(partial(waits_of, agent, idents), lambda waits: len(waits) == SIZE and all(one.enders for one in waits))
    assert {frozenset(wait.enders or ()) for wait in waits} == {frozenset(idents)}
    assert [wait.until for wait in waits] == [None] * SIZE
    assert all(wait.needs == 1 and len(wait.shares) > 1 for wait in waits)


@pytest.mark.parametrize("make", POOLS)
def test_a_timeout_is_a_deadline(make: Make, agent: Agent, port: int) -> None:
    idents, _ = start(make(port, 600.0, SIZE))
    waits = until(partial(waits_of, agent, idents), lambda waits: len(waits) == SIZE and all(one.enders for one in waits))
    for wait in waits:
        assert wait.until is not None
        assert time.time() < wait.until < time.time() + 601


@pytest.mark.parametrize("make", POOLS)
def test_a_connection_in_no_frame_makes_the_wait_unknown(make: Make, agent: Agent, port: int) -> None:
    take = make(port, None, SIZE)
    registry = [take()]  # a local of this thread, which looks and does not hold
    thread = threading.Thread(target=nested, args=(take, threading.Semaphore(0), _set(), []), daemon=True)
    thread.start()
    waits = until(partial(waits_of, agent, {thread.ident or 0}), lambda waits: len(waits) == 1)
    assert waits[0].enders is None
    assert registry


def _set() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


@pytest.mark.parametrize(
    ("make", "owner", "name"),
    [
        (of_sqlalchemy, "sqlalchemy.pool.impl.QueuePool", "_overflow"),
        (of_redis, "redis.connection.BlockingConnectionPool", "_connections"),
        (of_httpx, "httpcore.ConnectionPool", "_requests"),
        (of_urllib3, "urllib3.connectionpool.HTTPConnectionPool", "block"),
    ],
)
def test_an_unknown_version_of_a_library_is_not_read(
    make: Make, owner: str, name: str, agent: Agent, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The expected attribute is missing."""
    module = f"stilltrue.runtime.waits.pools.{owner.partition('.')[0]}"
    idents, _ = start(make(port, None, SIZE))
    until(partial(waits_of, agent, idents), lambda waits: len(waits) == SIZE)
    door = __import__(module, fromlist=["read"])
    read = door.read
    monkeypatch.setattr(door, "read", lambda thing, *path: object() if name in path else read(thing, *path))
    assert [wait.enders for wait in waits_of(agent, idents) if wait.enders] == []


# -- pools of tasks ----------------------------------------------------------------------------------------------------


class AioConnection(redis.asyncio.connection.AbstractConnection):
    """A connection to nowhere."""

    async def connect(self) -> None:
        pass

    async def can_read_destructive(self) -> bool:
        return False

    async def disconnect(self, *_: Any, **__: Any) -> None:
        pass

    def repr_pieces(self) -> list[tuple[str, Any]]:
        return []

    async def _connect(self) -> None:
        pass

    def _host_error(self) -> str:
        return ""

    def __del__(self, *_: Any) -> None:
        pass


async def aio_of_redis(port: int, stack: Any) -> Any:
    class Pool(redis.asyncio.BlockingConnectionPool):
        async def ensure_connection(self, connection: Any) -> None:
            pass

    pool: Any = Pool(max_connections=SIZE, timeout=None, connection_class=AioConnection)
    take: Take = pool.get_connection
    return take


async def aio_of_httpx(port: int, stack: Any) -> Any:
    limits = httpx.Limits(max_connections=SIZE)
    client = await stack(httpx.AsyncClient(limits=limits, timeout=None, trust_env=False))
    return lambda: client.send(client.build_request("GET", f"http://127.0.0.1:{port}/"), stream=True)


async def aio_of_aiohttp(port: int, stack: Any) -> Any:
    timeout = aiohttp.ClientTimeout(total=None)
    session = await stack(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=SIZE), timeout=timeout))
    return lambda: session.get(f"http://127.0.0.1:{port}/")


class MysqlConnection:
    """A connection to nowhere."""

    closed = eof_received = False

    @property
    def _reader(self) -> MysqlConnection:
        return self

    def at_eof(self) -> bool:
        return False

    def exception(self) -> None:
        pass

    def get_transaction_status(self) -> bool:
        return False

    def close(self) -> None:
        pass


async def aio_of_aiomysql(port: int, stack: Any) -> Any:
    library = pytest.importorskip("aiomysql")

    async def connect(**_: Any) -> MysqlConnection:
        return MysqlConnection()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(library.pool, "connect", connect)
        pool = await library.create_pool(minsize=SIZE, maxsize=SIZE)
    return pool.acquire


async def test_who_closes_a_pool_waits_for_all_that_have_connections_itself_included(agent: Agent) -> None:
    take = await aio_of_aiomysql(0, None)
    begun = asyncio.Event()

    async def hold() -> None:
        connection = await take()
        begun.set()
        await asyncio.Event().wait()
        del connection

    async def close() -> None:
        connection = await take()
        take.__self__.close()
        await take.__self__.wait_closed()
        del connection

    holding = asyncio.create_task(hold())
    await begun.wait()
    closing = asyncio.create_task(close())

    def waits() -> list[SeenWait]:
        wait = LiveProcessView(agent.parties, time.time()).wait_of_task(closing)
        return [] if wait is None else [wait]

    (found,) = await asyncio.to_thread(until, waits, lambda waits: bool(waits) and waits[0].enders is not None)
    assert set(found.enders or ()) == {holding, closing}
    assert found.needs is None
    for task in (holding, closing):
        task.cancel()
    await asyncio.gather(holding, closing, return_exceptions=True)


@pytest.mark.parametrize("make", [aio_of_redis, aio_of_httpx, aio_of_aiohttp, aio_of_aiomysql])
async def test_tasks_wait_for_each_other(make: Any, agent: Agent, port: int) -> None:
    closers: list[Any] = []

    async def stack(client: Any) -> Any:
        closers.append(client)
        return client

    take = await make(port, stack)
    have, go_on = asyncio.Semaphore(0), asyncio.Event()

    async def work() -> None:
        first = await take()
        have.release()
        await go_on.wait()
        await take()
        del first

    tasks = [asyncio.create_task(work()) for _ in range(SIZE)]
    for _ in tasks:
        await asyncio.wait_for(have.acquire(), SECONDS_MAX)
    go_on.set()

    def waits() -> list[SeenWait]:
        view = LiveProcessView(agent.parties, time.time())
        found = [view.wait_of_task(task) for task in tasks]
        return [wait for wait in found if wait is not None]

    found = await asyncio.to_thread(until, waits, lambda waits: len(waits) == SIZE and all(one.enders for one in waits))
    assert {frozenset(wait.enders or ()) for wait in found} == {frozenset(tasks)}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for client in closers:
        await (client.aclose() if isinstance(client, httpx.AsyncClient) else client.close())


@pytest.mark.parametrize(("sent", "is_kept"), [(b"", True), (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", False)])
async def test_the_server_releases_no_connection_of_aiohttp_before_its_head(sent: bytes, is_kept: bool, agent: Agent) -> None:
    """Once the head has come, the server may release the connection by sending the rest."""
    asked, end = asyncio.Semaphore(0), asyncio.Event()

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sent)
        asked.release()
        await end.wait()
        writer.close()

    async def read(session: aiohttp.ClientSession) -> None:
        async with session.get(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/") as response:
            await response.read()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1), timeout=timeout) as session:
        first = asyncio.create_task(read(session))
        await asyncio.wait_for(asked.acquire(), SECONDS_MAX)
        last = asyncio.create_task(read(session))
        await asyncio.sleep(0.2)
        found = await asyncio.to_thread(lambda: LiveProcessView(agent.parties, time.time()).wait_of_task(last))
        assert (found is not None and found.enders == (first,)) == is_kept
        assert not first.done()
        end.set()
        await asyncio.gather(first, last, return_exceptions=True)
    server.close()


# -- shares that are left behind ---------------------------------------------------------------------------------------


def left_behind(take: Take, keep: Callable[[Any], object]) -> None:
    """Threads that end without releasing their shares."""

    def leak() -> None:
        keep(take())

    for _ in range(SIZE):
        thread = threading.Thread(target=leak)
        thread.start()
        thread.join(SECONDS_MAX)


def waiter(agent: Agent, take: Take) -> Callable[[], list[SeenWait]]:
    thread = threading.Thread(target=lambda: take(), daemon=True)  # noqa: PLW0108 - a frame of the tests, by which it is known
    thread.start()
    return partial(waits_of, agent, {thread.ident or 0})


@pytest.mark.parametrize("make", [of_redis, of_httpx])
def test_connections_of_ended_threads_are_lost(make: Make, agent: Agent, port: int) -> None:
    take = make(port, None, SIZE)
    left_behind(take, id)
    gc.collect()
    waits = until(waiter(agent, take), lambda waits: bool(waits and waits[0].enders))
    assert [type(one) for one in waits[0].enders or ()] == [EndedHolder]


@pytest.mark.parametrize("make", [of_redis, of_httpx])
@pytest.mark.parametrize("how", ["list", "cycle", "closure"])
def test_a_connection_that_is_still_referenced_is_not_lost(make: Make, how: str, agent: Agent, port: int) -> None:
    take = make(port, None, SIZE)
    kept: list[Any] = []
    gc.disable()

    def keep(thing: Any) -> None:
        if how == "cycle":
            cycle = [thing]
            cycle.append(cycle)
        else:
            kept.append(thing if how == "list" else lambda: thing)

    try:
        left_behind(take, keep)
        waits = until(waiter(agent, take), bool)
        assert [wait.enders for wait in waits] == [None]
    finally:
        gc.enable()


def test_a_connection_that_the_collector_returns_is_not_lost(agent: Agent, port: int) -> None:
    take = of_sqlalchemy(port, None, SIZE)
    gc.disable()

    def keep(thing: Any) -> None:
        cycle = [thing]
        cycle.append(cycle)

    try:
        left_behind(take, keep)
        waits = until(waiter(agent, take), bool)
        assert [wait.enders for wait in waits] == [None]
    finally:
        gc.enable()
