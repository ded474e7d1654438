"""Reads that would end the process if Python's memory were in another state than it seems, each in a program of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import weakref
from collections.abc import Iterator

import pytest

from stilltrue.runtime.introspection import kept_generators

PATIENCE_SECONDS = 60.0


def run(program: str) -> None:
    """Run a program with guarded memory; it must end without an error."""
    with_guards = {**os.environ, "PYTHONMALLOC": "debug", "PYTHONFAULTHANDLER": "1"}
    command = [sys.executable, "-c", textwrap.dedent(program)]
    ended = subprocess.run(command, check=False, env=with_guards, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert ended.returncode == 0, ended.stderr[-2000:]


@pytest.mark.parametrize(
    ("begin", "step", "call"),
    [
        ("async def run(read):", "one.send(None)", "await_chain(one)"),
        ("async def run(read):", "one.send(None)", "awaited_by(one)"),
        ("def run(read):\n    yield", "next(one)", "awaited_by(one)"),
        ("async def run(read):\n    yield", "one.asend(None).send(None)", "awaited_by(one)"),
    ],
)
def test_what_runs_may_be_asked_what_it_awaits_at_any_instruction(begin: str, step: str, call: str) -> None:
    """The number in a call's cache changes with each execution, and for some it reads as an instruction."""
    run(
        f"""
from contextlib import suppress
from stilltrue.runtime.compat.tasks import await_chain
from stilltrue.runtime.introspection.frames import awaited_by

class Call:
    def __call__(self, function):
        return function()

def read():
    found.append({call})

{begin}
    call = Call()
    for _ in range(20_000):
        call(read)

found, one = [], None
one = run(read)
for _ in range(2):
    with suppress(StopIteration, StopAsyncIteration, RuntimeError):
        {step}
assert len(found) == 20_000 and all(below == ({"[one]" if "chain" in call else "None"}) for below in found), found[:3]
"""
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "change", ["future.remove_done_callback(done)", "[future.add_done_callback(print) for _ in range(50)]"]
)
def test_a_futures_callbacks_can_be_read_while_a_collection_is_due_that_changes_them(change: str) -> None:
    run(
        f"""
import asyncio
import gc
from stilltrue.runtime.introspection.tasks import awaiters
from stilltrue.runtime import compat

class Cycle:
    def __init__(self):
        self.own = self

    def __del__(self):
        {change}

def done(future):
    pass

loop = asyncio.new_event_loop()
for read in (compat.callbacks_of, awaiters) * 100:
    future = loop.create_future()
    future.add_done_callback(done)
    future.add_done_callback(done)
    gc.disable()
    gc.collect()
    Cycle()
    gc.set_threshold(1)
    gc.enable()
    read(future)
    gc.disable()
"""
    )


def test_a_suspended_coroutine_generator_and_asynchronous_generator_show_what_they_await() -> None:
    run(
        """
from stilltrue.runtime.introspection.frames import awaited_by

class Waits:
    def __await__(self):
        yield

async def outer():
    await inner()

async def inner():
    await Waits()

def delegates():
    yield from items()

def items():
    yield 1

async def produces():
    await inner()
    yield

coroutine, generator, producer = outer(), delegates(), produces()
assert [awaited_by(one) for one in (coroutine, generator, producer)] == [None] * 3
coroutine.send(None)
next(generator)
step = producer.asend(None)
step.send(None)
assert awaited_by(coroutine).__name__ == awaited_by(producer).__name__ == "inner"
assert awaited_by(awaited_by(coroutine)).__name__ == "__await__"
assert awaited_by(generator).__name__ == "items" and awaited_by(awaited_by(generator)) is None
coroutine.close()
step.close()
generator.close()
assert [awaited_by(one) for one in (coroutine, generator)] == [None] * 2
"""
    )


def test_a_generators_frame_can_be_read_after_the_generator_is_gone() -> None:
    run(
        """
import threading
from types import FrameType
from stilltrue.runtime.introspection.frames import frames_of_threads, innermost_frames, variables_of

def items():
    mine = ["here"]
    lock.acquire()
    yield mine

def takes_one():
    next(items())

lock = threading.Lock()
for read in (frames_of_threads, innermost_frames):
    lock.acquire()
    thread = threading.Thread(target=takes_one)
    thread.start()
    frame = None
    while frame is None or frame.f_code.co_name != "items":
        whole = read()
        found = whole.get(thread.ident)
        frame = found[0] if type(found) is not FrameType and found else found
    assert variables_of(frame) == {"mine": ["here"]}
    lock.release()
    thread.join()
    others = [bytes(size) for size in range(50, 1000)]
    assert frame.f_code.co_name == "items"
    assert list(variables_of(frame)) in ([], ["mine"])
    del frame, found, whole
    lock.release()
"""
    )


@pytest.mark.parametrize("read", ["frames_of_threads()", "innermost_frames()", "frames_of_thread(thread.ident)"])
def test_a_server_that_was_never_stopped_can_be_freed_while_its_thread_is_read(read: str) -> None:
    """gRPC logs it from the server's ``__dealloc__``, with the server as an argument, which no reference keeps any more."""
    run(
        f"""
import asyncio
import gc
import sys
import threading
import time
import grpc.aio
from stilltrue.runtime.introspection.frames import frames_of_thread, frames_of_threads, innermost_frames

async def makes():
    return [grpc.aio.server() for _ in range(100)]

def drops():
    loop = asyncio.new_event_loop()
    for _ in range(50):
        loop.run_until_complete(makes()).clear()
    loop.close()

grpc.aio.init_grpc_aio()  # for the whole run: a shutdown of gRPC between two servers would end its threads
gc.disable()  # a collection can run while a server is freed; then the reader needs the interpreter for a while
sys.setswitchinterval(1e-6)
thread = threading.Thread(target=drops)
thread.start()
while thread.is_alive():
    kept = {read}
    time.sleep(0.0001)
    del kept
"""
    )


def test_what_a_thread_logs_of_a_freed_object_is_left_out_of_its_frames() -> None:
    run(
        """
import logging
import threading
import time
from stilltrue.runtime.introspection.frames import frames_of_thread, frames_of_threads, innermost_frames

def frees():
    logging.getLogger("x").debug("__dealloc__ called on %s", ["a server"])

def informs():
    logging.getLogger("x").info("__dealloc__ called on %s", ["a server"])

def says():
    logging.getLogger("x").debug("called on %s", ["a server"])

handler = logging.StreamHandler()
logging.basicConfig(level=logging.DEBUG, handlers=[handler])
for target, innermost in ((frees, {"frees"}), (informs, {"acquire", "handle"}), (says, {"acquire", "handle"})):
    with handler.lock:
        thread = threading.Thread(target=target)
        thread.start()
        for read in (frames_of_threads, lambda: {thread.ident: frames_of_thread(thread.ident)}):
            while read()[thread.ident][0].f_code.co_name not in innermost:
                time.sleep(0.001)
        assert innermost_frames()[thread.ident].f_code.co_name in innermost
    thread.join()
"""
    )


@pytest.mark.parametrize("event", ["call", "c_call", "line", "return"])
@pytest.mark.parametrize("when", ["before", "meanwhile"])
@pytest.mark.parametrize("sets", ["sys.setprofile", "sys.settrace"])
def test_a_thread_with_a_trace_or_profile_function_keeps_its_variables(event: str, when: str, sets: str) -> None:
    """The interpreter writes a frame's dictionary back after each call of that function."""
    run(
        f"""
import sys
import threading
from stilltrue.runtime.introspection.frames import frames_of_threads, variables_of

def read():
    for frame in frames_of_threads()[thread.ident]:
        variables_of(frame)

def follow(frame, event, _):
    if frame.f_code in (work.__code__, items.__code__) and event == "{event}" and "{when}" == "meanwhile":
        at.release()
        go_on.acquire(timeout=1)
    return follow

def work(given):
    mine = [given]
    at.release()
    go_on.acquire(timeout=1)
    {sets}(follow)
    sys._getframe().f_trace = follow if {sets} is sys.settrace else None
    len(mine)
    done.extend((given, *mine, *items(given)))
    {sets}(None)

def items(given):
    mine = [given]
    yield given
    yield mine[0]

def run():
    work(1)

at, go_on, done = threading.Semaphore(0), threading.Semaphore(0), []
thread = threading.Thread(target=run)
thread.start()
while thread.is_alive():
    if at.acquire(timeout=0.05):
        read()
        go_on.release()
assert done == [1, 1, 1, 1], done
"""
    )


@pytest.mark.skipif(not kept_generators.IS_NEEDED, reason="this Python keeps the data of a generator's frame itself")
def test_a_generator_is_kept_only_as_long_as_the_frames_of_its_thread() -> None:
    inside, go_on = threading.Event(), threading.Event()

    def waits() -> Iterator[None]:
        inside.set()
        go_on.wait(PATIENCE_SECONDS)
        yield

    generators = [waits()]
    weak = weakref.ref(generators[0])
    thread = threading.Thread(target=lambda: next(generators[0]))
    thread.start()
    inside.wait(PATIENCE_SECONDS)
    found = kept_generators.frames_with_generators(10, ()).get(thread.ident or 0)
    assert found is not None
    go_on.set()
    thread.join()
    generators.clear()
    assert found.kept == [weak()] != [None]
    del found
    assert weak() is None
