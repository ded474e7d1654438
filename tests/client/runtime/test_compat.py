"""Reads of private attributes: each works with the installed gRPC and Python, and has a result if the attribute is missing."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from typing import Any

import grpc
import grpc.aio
import pytest

from stilltrue import Agent
from stilltrue.runtime import compat
from stilltrue.runtime.compat.threads import values_in_threads
from stilltrue.runtime.introspection.frames import frame_of, frames_of_threads, innermost_frames, variables_of
from tests.client.look.worlds import PATIENCE_SECONDS, LoopWorld, Stuck, serving, settle


@pytest.fixture
def stuck() -> Iterator[Stuck]:
    stuck = Stuck()
    yield stuck
    stuck.go.set()


def frames_where(found: Callable[[Any], bool]) -> list[Any]:
    return [frame for frames in frames_of_threads().values() for frame in frames if found(frame)]


@pytest.mark.parametrize("name", ["cancel", "set_result", "set_exception"])
async def test_what_a_compiled_method_is_bound_to_can_be_read(name: str) -> None:
    """From Python 3.12 on, such a method of a future has a type of its own."""
    future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    method = getattr(future, name)
    assert compat.bound_to(method) == (future,)
    assert compat.name_of(method).endswith(f"Future.{name}")
    assert compat.is_from_application(method)


def test_the_callbacks_of_calls_of_threads_can_be_read(alone: Callable[..., Agent], stuck: Stuck) -> None:
    contexts: list[Any] = []
    asked = threading.Event()

    def get(request: bytes, context: Any) -> bytes:
        contexts.append(context)
        context.add_callback(asked.is_set)
        return bytes(stuck(request, context))

    with serving(alone("back"), Get=get) as address, grpc.insecure_channel(address) as channel:
        stub: Any = channel.unary_unary("/s/Get")
        call = stub.future(b"")
        call.add_callback(asked.set)
        stuck.wait_for_callers()
        assert asked.set in (compat.end_callbacks(call) or ())
        at_end = compat.end_callbacks(contexts[0]) or ()
        assert any(asked.is_set in (callback, *compat.bound_to(callback)) for callback in at_end)
        servers = [variables_of(frame)["state"] for frame in frames_where(compat.is_serving)]
        assert any(id(contexts[0]._state) in compat.server_calls(server) for server in servers)
        assert not any(
            compat.is_stopping(server) for server in servers if id(contexts[0]._state) in compat.server_calls(server)
        )
        stuck.go.set()
        assert call.result() == b""


def test_the_feeding_of_a_request_stream_is_found_by_the_state_of_its_call(alone: Callable[..., Agent], stuck: Stuck) -> None:
    def feeds() -> Iterator[bytes]:
        yield b""
        stuck.go.wait(PATIENCE_SECONDS)

    def upload(requests: Any, context: Any) -> bytes:
        return bytes(stuck(next(requests), context))

    with serving(alone("back"), Upload=("stream_unary", upload)) as address, grpc.insecure_channel(address) as channel:
        stub: Any = channel.stream_unary("/s/Upload")
        call = stub.future(feeds())
        stuck.wait_for_callers()
        # another test's agent may just be leaving
        feeding = [compat.state_in(frame) for frame in frames_where(compat.is_feeding)]
        assert sum(state is call._state for state in feeding) == 1
        stuck.go.set()
        assert call.result() == b""


async def test_the_tasks_and_feeders_of_grpc_on_a_loop_are_known(alone: Callable[..., Agent]) -> None:
    world = LoopWorld(alone("front"), alone("back"))
    await world.start()

    async def feeds() -> AsyncIterator[bytes]:
        yield b""
        await world.go.wait()

    channel = grpc.aio.insecure_channel("127.0.0.1:1")
    plain: Any = channel.stream_unary("/t.T/Upload")
    call = plain(feeds())
    feeder = compat.feeder_of(call)
    assert feeder is not None
    assert compat.is_grpc_task(feeder)
    own = asyncio.current_task()
    assert own is not None
    assert not compat.is_grpc_task(own)
    others = [task for task in compat.tasks_of(asyncio.get_running_loop()) or () if task is not own]
    assert all(compat.is_grpc_task(task) for task in others)
    call.cancel()
    await channel.close()
    await world.stop()


async def test_of_many_tasks_the_first_of_a_loop_are_read() -> None:
    """Only unfinished tasks of that loop count; with few tasks all are read."""
    other, begun, end = asyncio.new_event_loop(), threading.Event(), threading.Event()

    async def elsewhere() -> None:
        tasks = [asyncio.create_task(asyncio.sleep(PATIENCE_SECONDS)) for _ in range(20)]
        await asyncio.sleep(0)
        begun.set()
        await asyncio.to_thread(end.wait)
        for task in tasks:
            task.cancel()

    thread = threading.Thread(target=other.run_until_complete, args=(elsewhere(),))
    thread.start()
    assert begun.wait(PATIENCE_SECONDS)
    loop = asyncio.get_running_loop()
    done = [asyncio.create_task(asyncio.sleep(0)) for _ in range(20)]
    await asyncio.gather(*done)
    tasks = [asyncio.create_task(asyncio.sleep(PATIENCE_SECONDS)) for _ in range(20)]
    await asyncio.sleep(0)
    some = compat.first_tasks_of(loop, 5)
    assert len(some) == len(set(some)) == 5
    assert set(some) <= asyncio.all_tasks(loop)
    assert set(compat.first_tasks_of(loop, 100)) == asyncio.all_tasks(loop)
    assert set(compat.first_tasks_of(loop, 30)) == asyncio.all_tasks(loop)
    end.set()
    thread.join(PATIENCE_SECONDS)
    other.close()
    for task in tasks:
        task.cancel()


async def test_a_loops_scheduled_callbacks_are_read_with_their_context() -> None:
    loop = asyncio.get_running_loop()
    variable: ContextVar[int] = ContextVar("variable")
    variable.set(7)
    timer = loop.call_later(60, variable.get)
    handles = compat.handles_of(loop)
    assert handles is not None
    assert timer in handles
    assert compat.callback_of(timer) == (variable.get, ())
    task = copy_context().run(loop.create_task, asyncio.sleep(0))
    for thing in (timer, task):
        context = compat.context_of(thing)
        assert context is not None
        assert context[variable] == 7
    timer.cancel()
    assert timer not in (compat.handles_of(loop) or ())
    await task


async def test_an_asynchronous_generator_is_looked_through() -> None:
    go = asyncio.Event()

    async def items() -> AsyncIterator[int]:
        await go.wait()
        yield 1

    async def takes() -> None:
        async for _ in items():
            pass

    task = asyncio.create_task(takes())
    await asyncio.sleep(0)
    names = [code.co_name for one in compat.await_chain(task.get_coro()) if (code := compat.code_of(one)) is not None]
    assert names == ["takes", "items", "wait"]
    go.set()
    await task


def test_the_thread_that_runs_an_item_and_its_waiter_are_found() -> None:
    executor = ThreadPoolExecutor(1)
    go, begun = threading.Event(), threading.Event()
    workers: list[int] = []

    def works() -> None:
        workers.append(threading.get_ident())
        begun.set()
        go.wait()

    future: Future[None] = executor.submit(works)
    assert begun.wait(PATIENCE_SECONDS)
    assert {ident for ident, frames in frames_of_threads().items() if compat.running_item(frames) is future} == set(workers)
    assert compat.is_running_future(future)
    waiter = threading.Thread(target=future.result)
    waiter.start()
    while not any(compat.future_awaited(frame) is future for frame in innermost_frames().values()):
        assert waiter.is_alive()
    assert waiter.native_id in compat.native_ids()
    go.set()
    waiter.join()
    executor.shutdown()


async def test_a_loops_future_is_known_by_the_executors() -> None:
    go = threading.Event()
    loop = asyncio.get_running_loop()
    awaited = loop.run_in_executor(None, go.wait, PATIENCE_SECONDS)
    assert isinstance(compat.source_of(awaited), Future)
    go.set()
    await awaited


def test_a_missing_attribute_is_doubt() -> None:
    class Loop:
        """Like uvloop's, which exposes nothing."""

    nothing: Any = Loop()
    assert compat.handles_of(nothing) is None
    assert compat.end_callbacks(nothing) is None
    assert compat.feeder_of(nothing) is None
    assert compat.source_of(nothing) is None
    assert compat.callbacks_of(nothing) == []


def test_a_class_with_an_odd_module_attribute_is_handled() -> None:
    """Like some of Python's own classes since 3.12, it has an attribute only on instances."""
    Odd = type("Odd", (), {"__module__": property(str)})  # noqa: N806 - a class
    assert compat.module_of(Odd) == ""
    assert compat.module_of(threading.Thread) == "threading"


async def test_nobody_else_can_close_an_asynchronous_generator_while_it_is_asked_for_an_item() -> None:
    """Its loop lists it; a paused one runs its ``finally`` when it is closed."""
    go = asyncio.Event()

    async def items() -> AsyncGenerator[int, None]:
        yield 1
        await go.wait()
        yield 2

    asked, paused = items(), items()
    assert [await anext(asked), await anext(paused)] == [1, 1]
    asking = asyncio.ensure_future(anext(asked))
    await asyncio.sleep(0)
    (of_asked,), (of_paused,) = weakref.getweakrefs(asked), weakref.getweakrefs(paused)
    assert compat.is_registry_ref(of_asked)
    assert not compat.is_registry_ref(of_paused)
    with pytest.raises(RuntimeError):
        await asked.aclose()
    go.set()
    assert await asking == 2
    assert not compat.is_registry_ref(of_asked)


async def test_a_compiled_coroutine_keeps_nothing_of_those_who_read_it() -> None:
    """In Python 3.10 its frame, made when it is first asked for, refers to the frame that asks, and to all callers of that."""
    async with grpc.aio.insecure_channel("127.0.0.1:1") as channel:
        plain: Any = channel.unary_stream("/t.T/Flow")
        call = plain(b"", wait_for_ready=True)
        await settle()

        def read() -> tuple[bool, weakref.ref[Any]]:
            own = threading.Event()
            chains = [compat.await_chain(task.get_coro()) for task in compat.tasks_of(asyncio.get_running_loop()) or ()]
            frames = [frame for chain in chains for one in chain if (frame := frame_of(one)) is not None]
            return any("_cygrpc" in frame.f_code.co_filename for frame in frames), weakref.ref(own)

        found, of_reader = read()
        assert found
        assert of_reader() is None
        call.cancel()


def test_a_thread_local_has_the_values_of_all_threads() -> None:
    local, there, go = threading.local(), threading.Event(), threading.Event()

    def keep() -> None:
        local.one = "theirs"
        there.set()
        go.wait(10)

    local.one = "ours"
    thread = threading.Thread(target=keep)
    thread.start()
    assert there.wait(10)
    assert sorted(values_in_threads(local)) == ["ours", "theirs"]
    go.set()
    thread.join()
    assert values_in_threads({"one": {"two": "three"}}) == []
