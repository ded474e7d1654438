"""Waits between the ends of calls and between processes, always for somebody who is slow; never a deadlock."""

from __future__ import annotations

import asyncio
import ctypes
import multiprocessing
import queue
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing.queues import JoinableQueue
from multiprocessing.synchronize import Event
from typing import Any

import grpc
import grpc.aio

import stilltrue
from tests.chaos.waits.load import Load, long_or_short, pause

RECORD = bytes(1_000_000)
RECORDS = 12
UNBOUNDED = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))
free, used = threading.Condition(), set[int]()


def key_in_use(chance: random.Random) -> None:
    """A key is in a set while somebody works with it."""
    key = chance.randrange(2)
    with free:
        while key in used:
            free.wait()
        used.add(key)
    pause(chance)
    with free:
        used.discard(key)
        free.notify_all()


def event_in_a_generator(chance: random.Random) -> None:
    """The rest of a suspended generator sets an event; another thread resumes it."""
    event = threading.Event()

    def stages() -> Iterator[None]:
        yield
        event.set()

    def resume(generator: Iterator[None]) -> None:
        pause(chance)
        next(generator, None)

    generator = stages()
    next(generator)
    threading.Thread(target=resume, args=(generator,)).start()
    del generator
    event.wait()


# -- calls to a server of this process ---------------------------------------------------------------------------------


def echo(request: bytes, context: Any) -> bytes:
    pause(random.Random())
    return request


def answer(requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
    for request in requests:
        pause(random.Random())
        yield request


def write_then_read(requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
    for _ in range(RECORDS):
        yield RECORD
    for _ in requests:
        pass


def serve() -> str:
    """A server with workers enough; its address."""
    server = grpc.server(ThreadPoolExecutor(24), options=UNBOUNDED)
    handlers: dict[str, Any] = {
        "Echo": grpc.unary_unary_rpc_method_handler(echo),
        "Talk": grpc.stream_stream_rpc_method_handler(answer),
        "Sync": grpc.stream_stream_rpc_method_handler(write_then_read),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Between", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    _servers.append(server)
    return f"127.0.0.1:{port}"


_servers: list[grpc.Server] = []


def talk(stub: Any, chance: random.Random) -> None:
    """Both ends read first, once the first request has been sent."""
    requests: queue.Queue[bytes | None] = queue.Queue()
    requests.put(b"1")
    for number, _ in enumerate(stub(iter(requests.get, None))):
        pause(chance)
        requests.put(b"2" if number < 3 else None)


def both_write(stub: Any, chance: random.Random) -> None:
    """Both ends write more than their windows hold; a thread reads, late."""
    sent = threading.Event()

    def records() -> Iterator[bytes]:
        for _ in range(RECORDS):
            yield RECORD
        sent.set()

    def read(replies: Any) -> None:
        time.sleep(long_or_short(chance, 0.5))
        for _ in replies:
            pass

    reader = threading.Thread(target=read, args=(stub(records()),))
    reader.start()
    sent.wait()
    reader.join()


def callback_calls(one: Any, other: Any, chance: random.Random) -> None:
    """A callback waits for a call of another channel."""
    over = threading.Event()

    def ask(_: Any) -> None:
        other.future(b"").result()
        over.set()

    one.future(b"").add_done_callback(ask)
    over.wait()


class Tokens(grpc.aio.UnaryUnaryClientInterceptor):
    """Fetches a token through its own channel, one call at a time."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.fetch: Any = None

    async def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        if request != b"token":
            async with self.lock:
                await self.fetch(b"token")
        return await continuation(details, request)


async def asks(load: Load, address: str) -> None:
    """Tasks whose calls wait for each other in an interceptor."""
    tokens = Tokens()
    async with grpc.aio.insecure_channel(address, interceptors=[tokens]) as channel:
        stub = tokens.fetch = channel.unary_unary("/Between/Echo")

        async def ask() -> None:
            while True:
                await stub(b"")
                load.did("ask")

        await asyncio.gather(*(ask() for _ in range(3)))


# -- a worker process --------------------------------------------------------------------------------------------------


def worker(go: Event, done: Event, jobs: JoinableQueue[float]) -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # the system ends this process with its parent
    stilltrue.instrument("worker", instance="worker").start()
    threading.Thread(target=_work_off, args=(jobs,), daemon=True).start()
    chance = random.Random("worker")
    while True:
        go.wait()
        go.clear()
        pause(chance)
        done.set()


def _work_off(jobs: JoinableQueue[float]) -> None:
    while True:
        time.sleep(jobs.get())
        jobs.task_done()


def signals_worker(go: Event, done: Event, chance: random.Random) -> None:
    pause(chance)
    go.set()
    done.wait()
    done.clear()


def joins_queue(jobs: JoinableQueue[float], chance: random.Random) -> None:
    for _ in range(3):
        jobs.put(long_or_short(chance))
    jobs.join()


def main() -> None:
    spawning = multiprocessing.get_context("spawn")
    go, done, jobs = spawning.Event(), spawning.Event(), spawning.JoinableQueue()
    spawning.Process(target=worker, args=(go, done, jobs), daemon=True).start()
    load = Load("between")
    address = serve()
    channels = [grpc.insecure_channel(address, options=UNBOUNDED) for _ in range(3)]
    one: Any = channels[0].unary_unary("/Between/Echo")
    other: Any = channels[1].unary_unary("/Between/Echo")
    works: list[tuple[str, Callable[[random.Random], object], int]] = [
        ("key_in_use", key_in_use, 3),
        ("event_in_a_generator", event_in_a_generator, 2),
        ("talk", partial(talk, channels[0].stream_stream("/Between/Talk")), 2),
        ("both_write", partial(both_write, channels[2].stream_stream("/Between/Sync")), 1),
        ("callback_calls", partial(callback_calls, one, other), 1),
        ("signals_worker", partial(signals_worker, go, done), 1),
        ("joins_queue", partial(joins_queue, jobs), 2),
    ]
    for name, work, threads in works:
        load.begin(name, work, threads)
    threading.Thread(target=lambda: asyncio.run(asks(load, address)), daemon=True).start()
    load.show()


if __name__ == "__main__":
    main()
