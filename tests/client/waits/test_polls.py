"""Calls whose handlers poll, or wait for a party that polls: they are unexplained. Those that work or send replies are not."""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import grpc
import pytest

from stilltrue import Agent
from stilltrue.runtime.look.standing import unexplained
from stilltrue.runtime.look.standing.stacks import Stacks
from stilltrue.runtime.look.standing.unexplained import Unexplained
from stilltrue.runtime.look.termination.polls import POLLING
from tests.client.waits.test_replies_due import World, on_a_loop

COUNTS = 6
_MANY_BYTES = bytes(1 << 20)


class Flag:
    """What a handler waits for, in a way that nobody can read."""

    def __init__(self) -> None:
        self.is_set = False
        self.other = threading.Event()

    def sleep(self) -> None:
        while not self.is_set:
            time.sleep(0.01)

    def wait(self) -> None:
        while not self.is_set:
            self.other.wait(0.01)

    def work(self) -> None:
        while not self.is_set:
            hashlib.sha256(_MANY_BYTES)  # without the GIL: it is always seen there

    async def sleep_on_loop(self) -> None:
        while not self.is_set:
            await asyncio.sleep(0.01)


def calls_counted(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> set[int | None]:
    monkeypatch.setattr(unexplained, "CALL_SECONDS_MIN", 0.0)
    counts = Unexplained(Stacks(agent.live, agent.parties, 0.05), 0.0, lambda _: None)
    found = set()
    for _ in range(COUNTS):
        time.sleep(0.1)
        counts._not_before = 0.0
        counts.count()
        found.add(counts.calls())
    return found - {None}


@pytest.mark.parametrize(("how", "counts"), [("sleep", True), ("wait", True), ("work", False)])
def test_a_call_that_polls_counts(alone: Callable[..., Agent], how: str, counts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    flag = Flag()

    def get(request: bytes, _: Any) -> bytes:
        getattr(flag, how)()
        return request

    with ExitStack() as stack:
        served = World(alone("server"), {"Get": get}, stack)
        served.call("Get")
        if counts:
            found = served.standing("Get")
            assert (found.blocked_in, found.unexplained, found.owes_reply) == (POLLING, True, True)
        counted = calls_counted(served.agent, monkeypatch)
        flag.is_set = True
    # one that works may have had no processor for a tenth of a second, but not each time
    assert 1 in counted if counts else counted != {1}


def test_a_stream_that_polls_does_not_count(alone: Callable[..., Agent], monkeypatch: pytest.MonkeyPatch) -> None:
    flag = Flag()

    def watch(request: bytes, _: Any) -> Iterator[bytes]:
        yield request
        flag.sleep()

    with ExitStack() as stack:
        served = World(alone("server"), {"Watch": ("unary_stream", watch)}, stack)
        replies = served.channel.unary_stream("/s/Watch")(b"")
        assert next(replies) == b""
        assert calls_counted(served.agent, monkeypatch) == {0}
        flag.is_set = True


def test_a_call_that_waits_for_a_thread_that_polls_counts(alone: Callable[..., Agent], monkeypatch: pytest.MonkeyPatch) -> None:
    flag, pool = Flag(), ThreadPoolExecutor(1)

    def get(request: bytes, _: Any) -> bytes:
        pool.submit(flag.sleep).result()
        return request

    with ExitStack() as stack:
        served = World(alone("server"), {"Get": get}, stack)
        served.call("Get")
        assert served.standing("Get", held=True).held_by
        counted = calls_counted(served.agent, monkeypatch)
        flag.is_set = True
    assert 1 in counted


@pytest.mark.parametrize(("polls", "expected"), [(True, 1), (False, 0)])
async def test_a_call_that_polls_on_a_loop_counts_and_a_long_sleep_does_not(
    alone: Callable[..., Agent], polls: bool, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    flag, agent = Flag(), alone("server")

    async def get(request: bytes, _: Any) -> bytes:
        await (flag.sleep_on_loop() if polls else asyncio.sleep(60))
        return request

    method: Any = grpc.unary_unary_rpc_method_handler(get)
    async with on_a_loop(agent, method) as channel:
        call = channel.unary_unary("/s/Get")(b"")
        counted = await asyncio.to_thread(calls_counted, agent, monkeypatch)
        flag.is_set = True
        call.cancel()
    assert max(one or 0 for one in counted) == expected
