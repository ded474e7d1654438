"""Waits for the end of a gRPC server that is being stopped: whom they are for, and when the grace period ends."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import grpc.aio
import pytest

from stilltrue import Agent
from stilltrue.model import SnapshotId
from stilltrue.protocol.report import LocalWait
from stilltrue.protocol.requests.look import LookRequest, Suspect
from tests.client.look.worlds import PATIENCE_SECONDS, Stuck, report_when
from tests.client.waits.conftest import targets

GRACE_SECONDS = 60.0


class Threaded:
    """A threaded server; ``Stop`` awaits its own server's end, ``Work`` is at work."""

    def __init__(self, agent: Agent, stuck: Stuck, grace: float | None) -> None:
        self.grace = grace
        self.server = grpc.server(agent.pool(ThreadPoolExecutor(4)), interceptors=[agent.server_interceptor()])
        methods: dict[str, Any] = {"Stop": grpc.unary_unary_rpc_method_handler(self.stop)}
        methods["Work"] = grpc.unary_unary_rpc_method_handler(stuck)
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("s", methods),))
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()

    def stop(self, request: bytes, context: Any) -> bytes:
        self.server.stop(self.grace).wait()
        return request


def wait_for(agent: Agent, *parties: str) -> LocalWait:
    """The wait for these parties of the last of them, once it is seen."""

    def found(report: Any) -> list[LocalWait]:
        return [
            one for one in report.waits if one.waiter.endswith(f"/{parties[-1]}") and sorted(targets(one)) == sorted(parties)
        ]

    return found(report_when(agent, lambda report: bool(found(report))))[0]


@pytest.mark.parametrize("beside", [False, True])
def test_a_handler_that_awaits_the_end_of_its_server_waits_for_all_its_calls_until_the_grace_period_ends(
    alone: Callable[..., Agent], stuck: Stuck, beside: bool
) -> None:
    front = alone("front")
    server, begun = Threaded(front, stuck, GRACE_SECONDS), time.time()
    with grpc.insecure_channel(server.address) as channel:
        work: Any = channel.unary_unary("/s/Work")
        stop: Any = channel.unary_unary("/s/Stop")
        kept: list[Any] = []
        if beside:
            kept.append(work.future(b""))
            stuck.wait_for_callers()
        kept.append(stop.future(b""))
        wait = wait_for(front, "Work#1", "Stop#2") if beside else wait_for(front, "Stop#1")
        assert wait.needs == len(wait.among)
        assert wait.deadline is not None
        assert begun + GRACE_SECONDS - 1 < wait.deadline < time.time() + GRACE_SECONDS + 1
        stuck.go.set()
        server.server.stop(0)


def look_at(agent: Agent, wait: LocalWait) -> Any:
    suspect = Suspect(party=wait.waiter, waits=(wait.number,))
    (answer,) = agent.looker().look(LookRequest(snapshot=SnapshotId(1), suspects=(suspect,))).parties
    return answer


@pytest.mark.skipif(sys.version_info < (3, 11), reason="what a task of grpc.aio awaits cannot be read through its wrappers")
@pytest.mark.parametrize("grace", [GRACE_SECONDS, 2 * GRACE_SECONDS])
async def test_a_task_that_awaits_the_end_of_its_server_waits_for_itself_until_the_grace_period_ends(
    alone: Callable[..., Agent], grace: float
) -> None:
    front = alone("front")
    server = grpc.aio.server(interceptors=[front.aio_server_interceptor()])
    stopping = asyncio.Event()

    async def stop(request: bytes, context: Any) -> bytes:
        stopping.set()
        await server.stop(grace)
        return request

    methods: dict[str, Any] = {"Stop": grpc.unary_unary_rpc_method_handler(stop)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("s", methods),))
    address, begun = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}", time.time()
    await server.start()
    async with grpc.aio.insecure_channel(address) as channel:
        stub: Any = channel.unary_unary("/s/Stop")
        call = stub(b"")
        await stopping.wait()
        wait = await asyncio.to_thread(wait_for, front, "Stop#1")
        answer = await asyncio.to_thread(look_at, front, wait)
        assert not [one for one in answer.ways_out if "being stopped" in one.text]  # this test itself is a way out: it stops
        assert not answer.doubt, answer.doubt
        assert begun + grace - 1 < answer.deadline < time.time() + grace + 1
        again = asyncio.create_task(server.stop(0))
        with pytest.raises(grpc.aio.AioRpcError):
            await asyncio.wait_for(call, PATIENCE_SECONDS)
        await again
