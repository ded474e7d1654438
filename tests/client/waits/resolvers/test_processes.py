"""A thread that waits for the end of a child process waits for the child's main thread, which the child reports."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from stilltrue.protocol.report import LocalWait, Report, ResourceTarget
from stilltrue.runtime.introspection.linux.child_processes import MARK, joined_at, process_at
from stilltrue.runtime.membership.member_mark import MemberMark
from stilltrue.runtime.waits.resolvers import processes
from tests.client.look.worlds import look_at, of, report_when
from tests.client.waits.conftest import Front

pytestmark = pytest.mark.skipif(not Path("/proc/self/syscall").exists(), reason="the system does not show system calls")
_TELLS = """
import sys
from stilltrue.runtime.waits.process_end import OwnEnd
end = OwnEnd()
end.search()
print(end._known[1], flush=True)
sys.stdin.read()
"""
_READS = "import sys; sys.stdin.read()"
_ROOT = str(Path(__file__).parents[4])


@pytest.fixture
def child() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", _READS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def wait_of(report: Report) -> LocalWait | None:
    found = [one for one in report.waits if one.waiter == "front/thread:waiter" and isinstance(one.among[0], ResourceTarget)]
    return found[0] if found else None


def resource_of(front: Front) -> str:
    wait = wait_of(report_when(front.agent, lambda report: wait_of(report) is not None))
    assert wait is not None
    assert isinstance(wait.among[0], ResourceTarget)
    return wait.among[0].resource


@pytest.mark.parametrize(
    "wait",
    [lambda one: one.wait(), lambda one: one.communicate(), lambda one: os.waitpid(one.pid, 0)],
    ids=["wait", "communicate", "waitpid"],
)
def test_waiting_for_a_child_process_waits_for_that_process(
    front: Front, child: subprocess.Popen[str], wait: Callable[[subprocess.Popen[str]], object]
) -> None:
    assert child.stdin is not None
    stdin, child.stdin = child.stdin, None  # communicate() would close it
    thread = front.start("waiter", wait, child)
    assert resource_of(front).startswith(f"end of process {child.pid}:")
    report = front.report_when_still("waiter")
    assert of(look_at(front.agent, report), "front/thread:waiter").unchanged
    stdin.close()
    thread.join()
    front.let_go()


def test_joining_a_multiprocessing_process_waits_for_its_end(front: Front) -> None:
    process = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,), daemon=True)
    process.start()
    front.start("waiter", process.join)
    assert resource_of(front).startswith(f"end of process {process.pid}:")
    process.kill()
    front.let_go()


@pytest.mark.parametrize(
    "wait",
    [lambda one: one.wait(15), lambda one: one.communicate(timeout=15)],
    ids=["wait", "communicate"],
)
def test_a_wait_with_a_timeout_is_none(
    front: Front, child: subprocess.Popen[str], wait: Callable[[subprocess.Popen[str]], object]
) -> None:
    assert child.stdin is not None
    stdin, child.stdin = child.stdin, None
    thread = front.start("waiter", wait, child)
    end = time.monotonic() + 0.5
    assert wait_of(report_when(front.agent, lambda _: time.monotonic() > end)) is None
    stdin.close()
    thread.join()
    front.let_go()


@pytest.mark.parametrize("is_member", [True, False])
def test_a_process_reports_its_end_if_its_parent_is_a_member(front: Front, is_member: bool) -> None:
    mark, own = MemberMark(), process_at(os.getpid())
    assert own is not None
    for descriptor in Path("/proc/self/fd").iterdir():  # another test's agent may be leaving, or has not left
        with suppress(OSError):
            if MARK in str(descriptor.readlink()):
                os.close(int(descriptor.name))
    assert joined_at(own) is None
    if is_member:
        mark.set()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(Path(_ROOT, "clients/python")), _ROOT))}
    command = [sys.executable, "-c", _TELLS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as child:
        assert child.stdout is not None
        told = child.stdout.readline().strip()
        front.start("waiter", child.wait)
        assert told == (resource_of(front) if is_member else "None")
        child.kill()
    mark.clear()
    mark.clear()
    front.let_go()


@pytest.mark.parametrize("method", ["wait", "communicate"])
def test_a_task_that_waits_for_a_child_process_waits_for_that_process(front: Front, method: str) -> None:
    pids: list[int] = []

    async def main() -> None:
        process = await asyncio.create_subprocess_exec("sleep", "600", stdout=asyncio.subprocess.PIPE)
        pids.append(process.pid)
        await getattr(process, method)()

    thread = front.start("waiter", lambda: asyncio.run(main()))
    report = report_when(front.agent, lambda report: bool(waits_of_tasks(report)))
    (wait,) = waits_of_tasks(report)
    assert isinstance(wait.among[0], ResourceTarget)
    assert wait.among[0].resource.startswith(f"end of process {pids[0]}:")
    assert of(look_at(front.agent, report), wait.waiter).unchanged
    os.kill(pids[0], signal.SIGKILL)
    thread.join()
    front.let_go()


def test_a_task_that_waits_for_a_child_process_in_time_is_not_blocked_for_good(front: Front) -> None:
    pids: list[int] = []

    async def main() -> None:
        process = await asyncio.create_subprocess_exec("sleep", "600")
        pids.append(process.pid)
        await asyncio.wait_for(process.wait(), 600)

    thread = front.start("waiter", lambda: asyncio.run(main()))
    end = time.monotonic() + 1.0
    report = report_when(front.agent, lambda _: bool(pids) and time.monotonic() > end)
    assert all(one.deadline is not None for one in waits_of_tasks(report))
    os.kill(pids[0], signal.SIGKILL)
    thread.join()
    front.let_go()


def waits_of_tasks(report: Report) -> list[LocalWait]:
    return [one for one in report.waits if "/task:" in one.waiter and isinstance(one.among[0], ResourceTarget)]


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("os.read(child.stdout.fileno(), 1)", True),
        ("poller = select.epoll()", True),
        ("open(key.fd)", True),
        ("from select import poll", True),
        ("child.poll()", False),
        ("import select", False),
    ],
)
def test_which_mentions_are_of_a_descriptors_number(text: str, is_one: bool) -> None:
    assert bool(processes._NUMBERS._wanted.search(text.encode())) is is_one
