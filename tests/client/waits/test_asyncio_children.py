"""A task that waits at a child of asyncio, which waits at a pipe that only the task uses, waits for itself."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest

from stilltrue import Agent
from stilltrue.model import PartyName
from stilltrue.protocol.report import PartyTarget, Report
from stilltrue.protocol.requests.look import PartyLook
from stilltrue.runtime.waits.pipes import asyncio_children
from tests.client.look.worlds import look_at, report_of

pytestmark = [
    pytest.mark.usefixtures("only_this_file_counts"),
    pytest.mark.skipif(not Path("/proc/self/timers").exists(), reason="the system does not show timers"),
]
WAITER = "here/task:waiter"
FAR_SECONDS, SECONDS_MAX = 600.0, 20.0
ATTEMPTS = 6
FILLS = "import sys; sys.{}.write('x' * 3_000_000)"
ECHOES = "import sys\nfor line in sys.stdin: print(line * 1000)"
READS = "import sys; sys.stdin.read()"
SLEEPS = "import time; time.sleep(600)"

Use = Callable[[Process], Awaitable[object]]


async def ends(child: Process) -> None:
    await child.wait()


async def reads_lines(child: Process) -> None:
    assert child.stdout is not None
    async for _ in child.stdout:
        pass


async def asks(child: Process) -> None:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(b"1")
    await child.stdin.drain()
    await child.stdout.readline()


async def writes(child: Process) -> None:
    assert child.stdin is not None
    while True:
        child.stdin.write(b"x" * 1000 + b"\n")
        await child.stdin.drain()


async def nothing(child: Process) -> None:
    pass


@contextmanager
def using(code: str, use: Use, beside: Use = nothing) -> Iterator[None]:
    """A task called ``waiter`` that uses a child with this code, after ``beside`` has begun."""
    begun, cancels = threading.Event(), list[Callable[[], object]]()

    async def run() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.set_name("waiter")
        cancels.append(partial(asyncio.get_running_loop().call_soon_threadsafe, cancel_all))
        del task
        child = await asyncio.create_subprocess_exec(sys.executable, "-ISc", code, stdin=PIPE, stdout=PIPE, stderr=PIPE)
        await beside(child)
        begun.set()
        with suppress(OSError, asyncio.CancelledError):
            await use(child)
        with suppress(ProcessLookupError):
            child.kill()
        await child.communicate()

    thread = threading.Thread(target=lambda: asyncio.run(run()), name="loop", daemon=True)
    thread.start()
    assert begun.wait(SECONDS_MAX)
    try:
        yield
    finally:
        cancels.pop()()
        thread.join(SECONDS_MAX)
        assert not thread.is_alive()


def cancel_all() -> None:
    for one in asyncio.all_tasks():
        one.cancel()


def own_waits(report: Report) -> list[Any]:
    """The waits of the task for itself."""
    return [one for one in report.waits if one.waiter == WAITER and one.among == (PartyTarget(party=PartyName(WAITER)),)]


def looked_at(agent: Agent) -> PartyLook | None:
    """The look at the task, once it waits for itself; None if it does not."""
    end = time.monotonic() + SECONDS_MAX
    while not own_waits(report := report_of(agent)):
        if time.monotonic() >= end:
            return None
        time.sleep(0.05)
    return next(one for one in look_at(agent, report).parties if one.party == WAITER)


@pytest.mark.parametrize(
    ("code", "use"),
    [
        (FILLS.format("stdout"), ends),
        (FILLS.format("stderr"), ends),
        (READS, ends),
        (FILLS.format("stderr"), reads_lines),
        (ECHOES, asks),
        (ECHOES, writes),
    ],
    ids=["output", "errors", "input", "lines", "asks", "writes"],
)
def test_who_waits_at_a_child_that_waits_at_another_pipe_waits_for_itself(
    alone: Callable[..., Agent], code: str, use: Use
) -> None:
    agent = alone("here")
    with using(code, use):
        seen = looked_at(agent)
        assert seen is not None
        assert (seen.unchanged, seen.ways_out, seen.doubt, seen.deadline) == (True, (), "", None)


async def a_task_that_reads_later(child: Process) -> None:
    async def read_later(stream: Any) -> None:
        await asyncio.sleep(FAR_SECONDS)
        async for _ in stream:
            pass

    asyncio.current_task().reads_later = asyncio.create_task(read_later(child.stderr), name="reader")  # type: ignore[union-attr]
    await asyncio.sleep(0)


async def a_timer_that_kills_it(child: Process) -> None:
    asyncio.get_running_loop().call_later(FAR_SECONDS, child.kill)


class Children:
    """Keeps all children that it has been given."""

    kept: ClassVar[dict[str, Process]] = {}

    @classmethod
    async def reap(cls) -> None:
        await asyncio.sleep(FAR_SECONDS)
        for one in cls.kept.values():
            one.send_signal(9)


async def a_task_that_finds_it_by_a_class(child: Process) -> None:
    Children.kept["child"] = child
    asyncio.current_task().reaps = asyncio.create_task(Children.reap(), name="reaper")  # type: ignore[union-attr]
    await asyncio.sleep(0)


async def a_thread_that_has_its_popen(child: Process) -> None:
    popen = child._transport.get_extra_info("subprocess")  # type: ignore[attr-defined]

    def end_later() -> None:
        for _ in range(int(SECONDS_MAX)):
            time.sleep(1)
        popen.kill()

    threading.Thread(target=end_later, name="ender", daemon=True).start()


async def a_thread_that_reads_by_descriptor(child: Process) -> None:
    transport: Any = child._transport  # type: ignore[attr-defined]
    descriptor = transport.get_pipe_transport(2).get_extra_info("pipe").fileno()

    def read_later() -> None:
        for _ in range(int(SECONDS_MAX)):
            time.sleep(1)
        if child.returncode is None:  # the test is not over; otherwise the descriptor may be another file's
            os.read(descriptor, 1)

    threading.Thread(target=read_later, name="reader", daemon=True).start()


@pytest.mark.parametrize(
    "beside",
    [
        a_task_that_reads_later,
        a_timer_that_kills_it,
        a_task_that_finds_it_by_a_class,
        a_thread_that_has_its_popen,
        a_thread_that_reads_by_descriptor,
    ],
)
def test_another_party_that_can_use_the_stream_is_a_way_out(alone: Callable[..., Agent], beside: Use) -> None:
    agent = alone("here")
    with using(FILLS.format("stderr"), reads_lines, beside):
        seen = looked_at(agent)
        Children.kept.clear()
        assert seen is not None
        assert seen.ways_out or seen.deadline


@pytest.mark.parametrize(
    ("code", "use"),
    [
        (SLEEPS, ends),
        (f"import sys; print('x'); sys.stdout.flush(); {SLEEPS}", ends),
        (f"import signal; signal.signal(signal.SIGALRM, lambda *_: 1 / 0); {FILLS.format('stderr')}", reads_lines),
        (f"import threading, time; threading.Thread(target=time.sleep, args=(600,)).start(); {READS}", ends),
    ],
    ids=["sleeps", "writes little", "alarm", "thread"],
)
def test_a_child_that_may_go_on_is_unknown(alone: Callable[..., Agent], code: str, use: Use) -> None:
    agent = alone("here")
    with using(code, use):
        for _ in range(ATTEMPTS):
            time.sleep(0.2)
            assert not own_waits(report_of(agent))


@pytest.mark.parametrize("number", [1, 2])
def test_another_process_at_one_of_the_pipes_is_found_by_the_look(alone: Callable[..., Agent], number: int) -> None:
    """It may write what the task reads, or read what the child writes."""
    agent, others = alone("here"), list[subprocess.Popen[bytes]]()

    async def beside(child: Process) -> None:
        if number == 1:
            end = os.open(f"/proc/{child.pid}/fd/1", os.O_WRONLY)
        else:
            end = os.open(f"/proc/{child.pid}/fd/2", os.O_RDONLY)
        others.append(subprocess.Popen([sys.executable, "-ISc", SLEEPS], pass_fds=[end]))
        os.close(end)

    with using(FILLS.format("stderr"), reads_lines, beside):
        try:
            seen = looked_at(agent)
            assert seen is None or not seen.unchanged
        finally:
            others[0].kill()
            others[0].wait()


def test_a_pipe_that_the_loop_reads_is_no_wait() -> None:
    """The child may be seen in ``write()`` at any moment: only the transport tells whether the loop makes room."""
    reader, writer = os.pipe()
    loop, paused = asyncio.new_event_loop(), list[bool]()

    async def run() -> None:
        transport, _ = await loop.connect_read_pipe(asyncio.Protocol, os.fdopen(reader, "rb"))
        pipe = asyncio_children._Pipe(reader, "", "write", transport, None)
        paused.append(asyncio_children._rests(pipe))
        transport.pause_reading()
        paused.append(asyncio_children._rests(pipe))
        transport.close()
        await asyncio.sleep(0)

    loop.run_until_complete(run())
    loop.close()
    os.close(writer)
    assert paused == [False, True]
