"""Ends of a call from within: its client interceptors on an event loop, and holders of a stream's call object."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import grpc
import grpc.aio
import pytest

from stilltrue.protocol.report import PartyTarget
from stilltrue.protocol.requests.look import Look
from tests.client.look.worlds import LoopWorld, free_of_ways_out, handler_of, holders, report_of, seconds_to, settle
from tests.client.since_311 import timeout

FAR_SECONDS = 60.0


class OfOne(grpc.aio.UnaryUnaryClientInterceptor):
    """Runs the test's function on each call."""

    def __init__(self, behaviour: Any) -> None:
        self.behaviour = behaviour

    async def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        """gRPC's interface."""
        return await self.behaviour(await continuation(client_call_details, request))


class OfMany(grpc.aio.UnaryStreamClientInterceptor):
    """The same for each stream."""

    def __init__(self, behaviour: Any) -> None:
        self.behaviour = behaviour

    async def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        """gRPC's interface."""
        return await self.behaviour(await continuation(client_call_details, request))


class OfUploads(grpc.aio.StreamUnaryClientInterceptor):
    """The same for each stream of requests."""

    def __init__(self, behaviour: Any) -> None:
        self.behaviour = behaviour

    async def intercept_stream_unary(self, continuation: Any, client_call_details: Any, request_iterator: Any) -> Any:
        """gRPC's interface."""
        return await self.behaviour(await continuation(client_call_details, request_iterator))


def intercepted(world: LoopWorld, behaviour: Any) -> Any:
    """The front's channel with such interceptors."""
    interceptors: Any = [OfOne(behaviour), OfMany(behaviour), OfUploads(behaviour)]
    return world.front.channel(grpc.aio.insecure_channel(world.address, interceptors=interceptors))


async def look_through(world: LoopWorld, behaviour: Any) -> Look:
    """The look at a handler whose call has an interceptor."""

    async def body(world: LoopWorld) -> None:
        async with intercepted(world, behaviour) as channel:
            await channel.unary_unary("/t.T/Stuck")(b"")

    return await world.look(body)


async def passes_on(call: Any) -> Any:
    return call


async def waits_for_the_end(call: Any) -> Any:
    await call
    return call


async def waits_in_a_task(call: Any) -> Any:
    await asyncio.wait([asyncio.ensure_future(call)])
    return call


async def adds_a_callback(call: Any) -> Any:
    call.add_done_callback(lambda _: None)
    return call


async def adds_a_callback_and_waits(call: Any) -> Any:
    call.add_done_callback(lambda _: None)
    await call.code()
    return call


async def cancels_later(call: Any) -> Any:
    asyncio.get_running_loop().call_later(FAR_SECONDS, call.cancel)
    return call


async def waits_until(call: Any) -> Any:
    await asyncio.wait_for(asyncio.shield(asyncio.ensure_future(call)), FAR_SECONDS)
    return call


async def waits_within(call: Any) -> Any:
    async with timeout(FAR_SECONDS):
        await call
    return call


AWAITING = [passes_on, waits_for_the_end, waits_in_a_task, adds_a_callback, adds_a_callback_and_waits]
"""The callbacks are metrics, for example: they act once the call is over."""


@pytest.mark.parametrize("behaviour", AWAITING)
async def test_an_interceptor_that_only_awaits_its_call_is_not_a_way_out(world: LoopWorld, behaviour: Any) -> None:
    look = await look_through(world, behaviour)
    assert free_of_ways_out(look)
    assert not any(one.doubt for one in look.parties)


TRACER = """
import asyncio

def factory(loop, coroutine, **more):
    async def traced():
        return await coroutine

    return asyncio.Task(traced(), loop=loop, **more)
"""


@pytest.fixture
async def traced() -> AsyncIterator[None]:
    """The loop's tasks run coroutines of a library, which await those that they were made for: Datadog's, for example."""
    names: dict[str, Any] = {}
    exec(compile(TRACER, "/app/lib/python3/site-packages/tracer/patch.py", "exec"), names)
    loop = asyncio.get_running_loop()
    loop.set_task_factory(names["factory"])
    yield
    loop.set_task_factory(None)


@pytest.mark.parametrize("behaviour", AWAITING)
async def test_nor_is_it_a_way_out_if_a_tracer_wraps_all_tasks(world: LoopWorld, traced: None, behaviour: Any) -> None:
    look = await look_through(world, behaviour)
    assert free_of_ways_out(look), look


@pytest.mark.parametrize("behaviour", [cancels_later, waits_until, waits_within])
async def test_a_timeout_in_an_interceptor_is_a_deadline_of_the_caller(world: LoopWorld, behaviour: Any) -> None:
    assert 0 < seconds_to(handler_of(await look_through(world, behaviour))) <= FAR_SECONDS


async def test_an_interceptor_that_awaits_something_else_may_end_the_wait(world: LoopWorld) -> None:
    async def sleeps(call: Any) -> Any:
        await asyncio.wait([asyncio.ensure_future(call)], timeout=0.0)
        await world.go.wait()
        return call

    look = await look_through(world, sleeps)
    ends = [wait.deadline for wait in world.cut.waits]
    assert ends
    assert all(end is not None and end <= world.cut.cut_at for end in ends)
    assert all(one.doubt for one in look.parties)


async def test_an_interceptor_goes_on_when_its_caller_does(world: LoopWorld) -> None:
    """Once the call is over, it may release the lock that others wait for: OpenTelemetry's and Sentry's seem to."""
    lock = asyncio.Lock()

    async def may_release(call: Any) -> Any:
        if await call.code() is grpc.StatusCode.ABORTED:
            lock.release()
        return call

    async def under_lock(ask: Any) -> None:
        async with lock:
            await ask(b"")

    async def body(world: LoopWorld) -> None:
        async with intercepted(world, may_release) as channel:
            await asyncio.gather(under_lock(channel.unary_unary("/t.T/Stuck")), under_lock(world.quick))

    look = await world.look(body)
    (at_lock,) = [wait.waiter for wait in world.cut.waits if wait.what.startswith("a lock")]
    (seen,) = [one for one in look.parties if one.party == at_lock]
    assert not [way for way in seen.ways_out if way.party is None and "may_release" in way.text]


class Refreshes(grpc.aio.UnaryUnaryClientInterceptor):
    """Makes a call of its own under a lock, before each call."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.lock = asyncio.Lock()

    async def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        """gRPC's interface."""
        async with self.lock:
            await self.call(b"")
        return await continuation(client_call_details, request)


async def test_a_call_waits_for_its_interceptor_that_waits_for_a_lock(world: LoopWorld) -> None:
    """The lock is held by the interceptor of another call, which is stuck in a call of its own."""
    interceptors: Any = [Refreshes(world.stuck)]

    async def ask(quick: Any) -> None:
        await quick(b"")

    async def body(world: LoopWorld) -> None:
        async with world.front.channel(grpc.aio.insecure_channel(world.address, interceptors=interceptors)) as channel:
            quick: Any = channel.unary_unary("/t.T/Quick")
            await asyncio.gather(ask(quick), ask(quick))

    look = await world.look(body)
    (at_lock,) = [wait for wait in world.cut.waits if wait.what.startswith("a lock")]
    awaiters = [wait.waiter for wait in world.cut.waits if PartyTarget(party=at_lock.waiter) in wait.among]
    assert len(awaiters) == 1
    assert not any("interceptor" in one.doubt for one in look.parties)
    assert all(wait.deadline is None for wait in world.cut.waits)


async def test_a_party_that_keeps_an_interceptors_calls_may_cancel_them(world: LoopWorld) -> None:
    kept: list[Any] = []

    async def keeps(call: Any) -> Any:
        kept.append(call)
        return call

    async def reaps(calls: list[Any]) -> None:
        await asyncio.sleep(FAR_SECONDS)
        for one in calls:
            one.cancel()

    reaper = asyncio.create_task(reaps(kept))
    look = await look_through(world, keeps)
    reaper.cancel()
    assert "-" in holders(handler_of(look))


@pytest.mark.parametrize("beneath", [True, False], ids=["intercepted", "plain"])
@pytest.mark.parametrize("cancelled", [True, False])
async def test_a_timer_that_cancels_a_stream_is_a_deadline_of_its_reader(
    world: LoopWorld, beneath: bool, cancelled: bool
) -> None:
    def later(call: Any) -> None:
        if cancelled:
            asyncio.get_running_loop().call_later(FAR_SECONDS, call.cancel)

    async def later_beneath(call: Any) -> Any:
        later(call)
        return call

    async def read(replies: AsyncIterator[bytes]) -> None:
        async for _ in replies:
            pass

    async def body(world: LoopWorld) -> None:
        if beneath:
            async with intercepted(world, later_beneath) as channel:
                await read(channel.unary_stream("/t.T/Flow")(b""))
        else:
            replies = world.flow(b"")
            later(replies)
            await read(replies)

    seen = handler_of(await world.look(body))
    assert not seen.doubt
    if cancelled:
        assert 0 < seconds_to(seen) <= FAR_SECONDS
    else:
        assert (seen.deadline, seen.ways_out) == (None, ())


async def test_a_dropped_stream_is_not_kept_alive_by_its_items(world: LoopWorld) -> None:
    async def body(world: LoopWorld) -> None:
        items = aiter(world.flow(b""))
        await settle()
        owner = items.owner
        assert owner() is None

    world.body = body
    await world.outside.unary_unary("/t.T/Do")(b"")
    assert not report_of(world.front).waits


async def test_a_party_with_a_handlers_context_may_send_the_awaited_item(world: LoopWorld) -> None:
    contexts: list[Any] = []

    async def companion(context: Any) -> None:
        await asyncio.sleep(FAR_SECONDS)
        await context.write(b"")

    async def body(world: LoopWorld) -> None:
        beside = asyncio.create_task(companion(contexts.pop()))
        await world.stuck(b"")
        beside.cancel()

    world.on_context = contexts.append
    assert "-" in holders(handler_of(await world.look(body)))


async def _await(call: Any) -> None:
    with suppress(asyncio.CancelledError):
        await call


async def _cancel_later(what: Any) -> None:
    await asyncio.sleep(FAR_SECONDS)
    what.cancel()


@pytest.mark.parametrize("what", ["call", "reader", "nothing"])
@pytest.mark.parametrize("nested", [False, True])
async def test_the_task_that_sends_a_calls_requests_is_cancelled_with_the_call(
    world: LoopWorld, what: str, nested: bool
) -> None:
    """It waits for a lock, or for a task that does, and another task later cancels the call or the reader of the reply."""
    lock, others = asyncio.Lock(), list[asyncio.Task[Any]]()

    async def take() -> None:
        async with lock:
            pass

    async def requests() -> AsyncIterator[bytes]:
        await (asyncio.create_task(take()) if nested else take())
        yield b""

    async def body(world: LoopWorld) -> None:
        async with lock:
            call = world.upload(requests())
            others.append(asyncio.create_task(_await(call), name="reader"))
            cancelled = {"call": call, "reader": others[0]}.get(what)
            others.append(asyncio.create_task(_cancel_later(cancelled), name="other"))
            await world.stuck(b"")
        for other in others:
            other.cancel()

    look = await world.look(body)
    (waiter,) = [wait.waiter for wait in world.cut.waits if wait.what.startswith("a lock")]
    (seen,) = [one for one in look.parties if one.party == waiter]
    assert any("task other" in way.text for way in seen.ways_out) == (what != "nothing")


async def test_the_task_that_sends_requests_through_interceptors_may_be_cancelled_by_them(world: LoopWorld) -> None:
    lock = asyncio.Lock()

    async def requests() -> AsyncIterator[bytes]:
        async with lock:
            yield b""

    async def body(world: LoopWorld) -> None:
        async with intercepted(world, passes_on) as channel:
            async with lock:
                call = channel.stream_unary("/t.T/Upload")(requests())
                await world.stuck(b"")
            call.cancel()

    look = await world.look(body)
    (waiter,) = [wait.waiter for wait in world.cut.waits if wait.what.startswith("a lock")]
    (seen,) = [one for one in look.parties if one.party == waiter]
    assert "interceptors" in seen.doubt


async def test_the_iterator_of_the_requests_may_fail_beneath_interceptors(world: LoopWorld) -> None:
    async def feeds() -> AsyncIterator[bytes]:
        yield b"1"
        await world.go.wait()

    async def body(world: LoopWorld) -> None:
        async with intercepted(world, passes_on) as channel:
            await channel.stream_unary("/t.T/Upload")(feeds())

    (way,) = handler_of(await world.look(body)).ways_out
    assert "its request iterator" in way.text
