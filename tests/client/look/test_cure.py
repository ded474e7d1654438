"""The agent's part of a cure: a victim's current call ends with ABORTED, and a party that has moved on is left alone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import grpc.aio
import pytest

from stilltrue import Agent
from stilltrue.protocol.report import Report
from stilltrue.protocol.requests.cure import CureRequest, PartyCured
from stilltrue.runtime.cure.aborter import GONE_ON, Aborter
from stilltrue.runtime.introspection.frames import frames_of_threads
from tests.client.look.worlds import PATIENCE_SECONDS, Stuck, report_when, serving, settle, suspects_of

INCIDENT = "i-0123456789"


@pytest.fixture
def stuck() -> Iterator[Stuck]:
    stuck = Stuck()
    yield stuck
    stuck.go.set()


def cure(agent: Agent, report: Report, party: str) -> PartyCured:
    """Abort the one party whose name begins with ``name``, as the report shows it."""
    victims = tuple(one for one in suspects_of(report) if one.party.startswith(party))
    aborter = Aborter(agent.live, agent.parties, agent.looker().waits_in_force)
    (done,) = aborter.cure(CureRequest(number=1, incident=INCIDENT, victims=victims)).parties
    return done


def report_of_waiter(agent: Agent, waiter: str) -> Report:
    """The report once this party waits."""
    return report_when(agent, lambda report: any(wait.waiter.startswith(waiter) for wait in report.waits))


def report_of_stuck(agent: Agent, waiter: str, threads: int = 1) -> Report:
    """The report once this many threads, including this party's, are in gRPC's own wait. A call reaches its server earlier."""

    def stands(report: Report) -> bool:
        names = [{frame.f_code.co_name for frame in frames} for frames in frames_of_threads().values()]
        waits = any(wait.waiter.startswith(waiter) for wait in report.waits)
        inside = [those for those in names if those & {"place", "calls"} and those & {"_blocking", "_next"}]
        return waits and len(inside) == threads

    return report_when(agent, stands)


def fails_with_aborted(call: Any) -> bool:
    """Whether a call ended with ABORTED and a message that names the incident."""
    return call.code() is grpc.StatusCode.ABORTED and INCIDENT in call.details()


@pytest.mark.parametrize("streams", [False, True])
def test_a_cured_handler_is_freed_and_its_caller_gets_the_reason(
    alone: Callable[..., Agent], stuck: Stuck, streams: bool
) -> None:
    front, back = alone("front"), alone("back")
    errors: list[grpc.RpcError] = []
    freed = threading.Event()

    def each(request: bytes, context: Any) -> Iterator[bytes]:
        yield stuck(request, context)

    with serving(back, Get=("unary_stream", each) if streams else stuck) as behind, grpc.insecure_channel(behind) as to_back:
        wrapped = front.channel(to_back)
        get: Any = wrapped.unary_stream("/s/Get") if streams else wrapped.unary_unary("/s/Get")

        def place(request: bytes, context: Any) -> bytes:
            try:
                return bytes(next(get(request)) if streams else get(request))
            except grpc.RpcError as error:
                errors.append(error)
                raise
            finally:
                freed.set()

        with serving(front, workers=1, Place=place) as address, grpc.insecure_channel(address) as to_front:
            stub: Any = to_front.unary_unary("/s/Place")
            call = stub.future(b"")
            stuck.wait_for_callers()
            done = cure(front, report_of_stuck(front, "front/Place"), "front/Place")
            assert (done.aborted, "ended with ABORTED" in done.text) == (True, True)
            assert isinstance(call.exception(PATIENCE_SECONDS), grpc.RpcError)
            assert fails_with_aborted(call)
            assert freed.wait(PATIENCE_SECONDS)
            assert len(errors) == 1
            stuck.go.set()
            assert stub(b"", timeout=PATIENCE_SECONDS) == b"", "its worker serves the next call"
    assert front.live.faults == back.live.faults == 0


def test_a_handler_that_waits_for_a_lock_keeps_waiting_but_its_caller_does_not(alone: Callable[..., Agent]) -> None:
    front = alone("front")
    lock, got = front.Lock("shelf"), threading.Event()

    def place(request: bytes, context: Any) -> bytes:
        with lock:
            got.set()
            return request

    with serving(front, Place=place) as address, grpc.insecure_channel(address) as channel, lock:
        stub: Any = channel.unary_unary("/s/Place")
        call = stub.future(b"")
        report = report_of_waiter(front, "front/Place")
        done = cure(front, report, "front/Place")
        assert (done.aborted, "its thread stays at" in done.text) == (True, True)
        assert isinstance(call.exception(PATIENCE_SECONDS), grpc.RpcError)
        assert fails_with_aborted(call)
        assert not got.is_set(), "no lock is taken away, nor given"
        lock.release()
        assert got.wait(PATIENCE_SECONDS)
        lock.acquire()
    assert front.live.faults == 0


def test_a_cure_ends_the_call_of_a_plain_thread_but_not_its_wait_for_a_lock(alone: Callable[..., Agent], stuck: Stuck) -> None:
    front, back = alone("front"), alone("back")
    lock = front.Lock("shelf")
    errors: list[Any] = []
    with serving(back, workers=1, Get=stuck) as address, grpc.insecure_channel(address) as channel:
        get: Any = front.channel(channel).unary_unary("/s/Get")

        def calls() -> None:
            try:
                get(b"")
            except grpc.RpcError as error:
                errors.append(error)

        held, queued = (threading.Thread(target=calls, name=name) for name in ("held", "queued"))
        held.start()
        stuck.wait_for_callers()
        queued.start()
        report_when(back, lambda report: any(not served.serving for served in report.served))
        assert cure(front, report_of_stuck(front, "front/thread:queued", threads=2), "front/thread:queued").aborted
        queued.join(PATIENCE_SECONDS)
        assert fails_with_aborted(errors[0])
        stuck.go.set()
        held.join(PATIENCE_SECONDS)
        assert len(errors) == 1
    with lock:
        waiter = threading.Thread(target=lock.acquire, name="waiter")
        waiter.start()
        report = report_of_waiter(front, "front/thread:waiter")
        done = cure(front, report, "front/thread:waiter")
        assert (done.aborted, "it serves no call and waits for none" in done.text) == (False, True)
        assert waiter.is_alive()
    waiter.join(PATIENCE_SECONDS)


def test_a_late_cure_aborts_no_call(alone: Callable[..., Agent], stuck: Stuck) -> None:
    front, back = alone("front"), alone("back")
    with serving(back, Get=stuck) as address, grpc.insecure_channel(address) as channel:
        get: Any = front.channel(channel).unary_unary("/s/Get")
        replies: list[bytes] = []

        def calls() -> None:
            replies.append(get(b"1"))
            stuck.go.clear()
            replies.append(get(b"2"))

        thread = threading.Thread(target=calls, name="caller")
        thread.start()
        stuck.wait_for_callers()
        first = report_of_stuck(front, "front/thread:caller")
        stuck.go.set()
        stuck.wait_for_callers()
        done = cure(front, first, "front/thread:caller")
        assert (done.aborted, done.text) == (False, GONE_ON)
        stuck.go.set()
        thread.join()
        assert replies == [b"1", b"2"]


@pytest.mark.parametrize("how", ["lock", "sync"])
async def test_on_an_event_loop(alone: Callable[..., Agent], stuck: Stuck, how: str) -> None:
    front, back = alone("front"), alone("back")
    lock = front.aio.Lock("shelf")
    held = 0

    async def takes(request: bytes, context: Any) -> bytes:
        nonlocal held
        async with lock:
            held += 1
            return request

    with serving(back, Get=stuck) as behind, grpc.insecure_channel(behind) as to_back:
        get: Any = front.channel(to_back).unary_unary("/s/Get")

        def calls(request: bytes, context: Any) -> bytes:
            return bytes(get(request))

        server = grpc.aio.server(interceptors=[front.aio_server_interceptor()])
        methods: dict[str, Any] = {"Place": grpc.unary_unary_rpc_method_handler(takes if how == "lock" else calls)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("s", methods),))
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        async with grpc.aio.insecure_channel(address) as channel:
            stub: Any = channel.unary_unary("/s/Place")
            await lock.acquire()
            call = stub(b"")
            if how == "sync":
                await asyncio.to_thread(stuck.wait_for_callers)
            waiting = report_of_stuck if how == "sync" else report_of_waiter
            report = await asyncio.to_thread(waiting, front, "front/Place")
            await settle()
            done = await asyncio.to_thread(cure, front, report, "front/Place")
            assert done.aborted, done.text
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await asyncio.wait_for(call, PATIENCE_SECONDS)
            assert (failed.value.code(), INCIDENT in str(failed.value.details())) == (grpc.StatusCode.ABORTED, True)
            lock.release()
            stuck.go.set()
            assert await stub(b"", timeout=PATIENCE_SECONDS) == b"", "the next call is served"
            assert held == (1 if how == "lock" else 0)
        await server.stop(0)
    assert front.live.faults == 0
