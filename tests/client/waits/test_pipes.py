"""A thread that waits at a pipe of multiprocessing waits for the work of all processes that have its other end."""

from __future__ import annotations

import logging
import logging.handlers
import multiprocessing
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from stilltrue import Agent
from stilltrue.model import Activity, PartyName
from stilltrue.protocol.report import LocalWait, Report, ResourceTarget
from stilltrue.runtime.introspection.frames import frames_of_threads
from stilltrue.runtime.introspection.linux import child_processes
from stilltrue.runtime.introspection.linux.child_processes import process_at
from stilltrue.runtime.log_queue import LogQueue
from stilltrue.runtime.waits.pipes import kernel, resolver, work
from stilltrue.runtime.waits.resolvers.processes import work_of
from stilltrue.runtime.waits.wait import CallStack
from tests.client.look.worlds import look_at, of, report_when
from tests.client.waits.conftest import PATIENCE_SECONDS, Front

pytestmark = pytest.mark.skipif(not Path("/proc/self/syscall").exists(), reason="the system does not show system calls")
SPAWN: Any = multiprocessing.get_context("spawn")
FULL = 1 << 20
"""More bytes than there is room for in a pipe."""
_READS = "import sys; sys.stdin.read()"
Ends = tuple[Connection, Connection]


@pytest.fixture
def ends() -> Iterator[Ends]:
    """The reading and the writing end of a pipe."""
    reader, writer = SPAWN.Pipe(duplex=False)
    yield reader, writer
    reader.close()
    writer.close()


@pytest.fixture
def child(ends: Ends) -> Iterator[Callable[[int], subprocess.Popen[bytes]]]:
    """Starts a process that has this end of the pipe open."""
    started: list[subprocess.Popen[bytes]] = []

    def start(end: int) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen([sys.executable, "-ISc", _READS], stdin=subprocess.PIPE, pass_fds=(end,)))
        return started[-1]

    yield start
    for process in started:
        process.communicate()


def wait_of(report: Report) -> LocalWait | None:
    """The waiter's wait for resources."""
    found = [one for one in report.waits if one.waiter == "front/thread:waiter" and isinstance(one.among[0], ResourceTarget)]
    return found[0] if found else None


def find_now() -> None:
    """Find the processes at the pipes at which threads wait now."""
    resolver._Known.awaited, resolver._Known.processes, resolver._Known.not_before = frozenset(), {}, float("-inf")
    resolver.find_processes_at_pipes()


def report_once_seen(agent: Agent) -> Report:
    def is_seen(report: Report) -> bool:
        find_now()
        return wait_of(report) is not None

    return report_when(agent, is_seen)


def own_work() -> ResourceTarget:
    own = process_at(os.getpid())
    assert own is not None
    name = work_of(own)
    assert name is not None
    return ResourceTarget(resource=name)


def test_who_reads_an_empty_pipe_waits_for_those_who_can_write(front: Front, ends: Ends) -> None:
    reader, writer = ends
    front.start("waiter", reader.recv)
    report = report_once_seen(front.agent)
    wait = wait_of(report)
    assert wait is not None
    assert (wait.among, wait.needs, wait.uncoloured) == ((own_work(),), 1, True)
    assert of(look_at(front.agent, report), "front/thread:waiter").unchanged
    writer.send("")
    front.let_go()


def test_who_writes_a_full_pipe_waits_for_those_who_can_read(front: Front, ends: Ends) -> None:
    reader, writer = ends
    front.start("waiter", writer.send_bytes, bytes(FULL))
    report = report_once_seen(front.agent)
    wait = wait_of(report)
    assert wait is not None
    assert wait.among == (own_work(),)
    assert of(look_at(front.agent, report), "front/thread:waiter").unchanged
    reader.recv_bytes()
    front.let_go()


@pytest.mark.parametrize("end", ["reader", "writer"])
def test_a_process_whose_thread_waits_for_a_message_is_idle_but_not_one_whose_thread_waits_for_room(
    front: Front, ends: Ends, end: str
) -> None:
    reader, writer = ends
    front.agent.idle()
    if end == "reader":
        front.start("waiter", reader.recv)
    else:
        front.start("waiter", writer.send_bytes, bytes(FULL))
    assert report_once_seen(front.agent).activity is (Activity.IDLE if end == "reader" else Activity.BLOCKED)
    if end == "reader":
        writer.send("")
    else:
        reader.recv_bytes()
    front.let_go()


def test_a_reader_of_a_queue_waits_for_those_who_can_put(front: Front) -> None:
    queue = SPAWN.Queue()
    front.start("waiter", queue.get)
    wait = wait_of(report_once_seen(front.agent))
    assert wait is not None
    assert wait.among == (own_work(),)
    queue.put("")
    front.let_go()


@pytest.mark.parametrize("make", [SPAWN.Queue, SPAWN.JoinableQueue])
def test_who_puts_into_a_full_queue_waits_for_those_who_can_get(front: Front, make: Callable[[int], Any]) -> None:
    queue = make(1)
    queue.put("")
    front.start("waiter", queue.put, "")
    report = report_once_seen(front.agent)
    wait = wait_of(report)
    assert wait is not None
    assert wait.among == (own_work(),)
    assert of(look_at(front.agent, report), "front/thread:waiter").unchanged
    queue.get()
    front.let_go()
    queue.get()


def test_putting_into_a_full_queue_with_a_timeout_is_no_wait(front: Front) -> None:
    queue = SPAWN.Queue(1)
    queue.put("")
    front.start("waiter", queue.put, "", True, 10)
    front.report_when_still("waiter")
    find_now()
    assert not resolver._Known.processes
    queue.get()
    front.let_go()
    queue.get()


@pytest.mark.parametrize("wait", [lambda queue: queue.get(timeout=10), lambda queue: queue._reader.poll(10) and queue.get()])
def test_a_wait_with_a_timeout_is_none(front: Front, wait: Callable[[Any], object]) -> None:
    queue = SPAWN.Queue()
    thread = front.start("waiter", wait, queue)
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        assert wait_of(report_when(front.agent, lambda _: True)) is None
        find_now()
    queue.put("")
    thread.join(PATIENCE_SECONDS)
    front.let_go()


def test_who_reads_from_a_connection_of_both_ways_waits_for_those_who_have_its_other_end(front: Front) -> None:
    one, other = SPAWN.Pipe()
    front.start("waiter", one.recv)
    report = report_once_seen(front.agent)
    wait = wait_of(report)
    assert wait is not None
    assert wait.among == (own_work(),)
    assert of(look_at(front.agent, report), "front/thread:waiter").unchanged
    other.send("")
    front.let_go()


def test_who_writes_into_a_full_connection_of_both_ways_waits_for_those_who_have_its_other_end(front: Front) -> None:
    one, other = SPAWN.Pipe()
    front.start("waiter", one.send_bytes, bytes(FULL))
    report = report_once_seen(front.agent)
    assert wait_of(report) is not None
    assert of(look_at(front.agent, report), "front/thread:waiter").unchanged
    other.recv_bytes()
    front.let_go()


def test_the_processes_at_a_connection_of_both_ways_are_those_with_its_other_end(
    child: Callable[[int], subprocess.Popen[bytes]],
) -> None:
    one, other = SPAWN.Pipe()
    end = kernel.other_end_at(one.fileno())
    assert end is not None
    here, there = child(one.fileno()), child(other.fileno())
    assert kernel.processes_at(end, "write") == frozenset({os.getpid(), there.pid})
    other.close()
    assert kernel.processes_at(end, "write") == frozenset({there.pid})
    there.communicate()
    assert kernel.other_end_at(one.fileno()) is None, "a read would end at once"
    assert not kernel.is_blocked(one.fileno(), "read")
    here.communicate()


def test_a_socket_of_the_network_has_no_known_other_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        assert kernel.other_end_at(client.fileno()) is None
    assert kernel.other_end_at(client.fileno()) is None


def test_a_process_that_this_one_has_started_otherwise_may_end_at_any_time(
    front: Front, ends: Ends, child: Callable[[int], subprocess.Popen[bytes]]
) -> None:
    """``subprocess`` does not tell which objects end it, so nothing is known about the wait."""
    reader, writer = ends
    child(writer.fileno())
    front.start("waiter", reader.recv)
    front.report_when_still("waiter")
    find_now()
    assert len(resolver._Known.processes) == 1
    assert wait_of(report_when(front.agent, lambda _: True)) is None
    writer.send("")
    front.let_go()


def test_a_process_that_has_got_the_other_end_since_the_cut_ends_the_certainty(
    front: Front, ends: Ends, child: Callable[[int], subprocess.Popen[bytes]]
) -> None:
    reader, writer = ends
    front.start("waiter", reader.recv)
    report = report_once_seen(front.agent)
    assert of(look_at(front.agent, report), "front/thread:waiter").unchanged
    child(writer.fileno())
    assert not of(look_at(front.agent, report), "front/thread:waiter").unchanged
    writer.send("")
    front.let_go()


def test_the_same_waits_are_looked_for_ever_more_rarely(front: Front, ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another wait is looked for soon."""
    reader, writer = ends
    now, read = [0.0], list[str]()
    front.start("waiter", reader.recv)
    front.report_when_still("waiter")
    find_now()
    assert len(resolver._Known.processes) == 1
    processes_at = kernel.processes_at

    def counted(pipe: str, call: str) -> frozenset[int] | None:
        read.append(pipe)
        return processes_at(pipe, call)

    monkeypatch.setattr(kernel, "processes_at", counted)
    monkeypatch.setattr(resolver, "time", SimpleNamespace(monotonic=lambda: now[0]))
    resolver._Known.awaited, resolver._Known.not_before = frozenset(), float("-inf")
    for second in range(600):
        now[0] = second
        resolver.find_processes_at_pipes()
    assert 5 < len(read) < 30
    queue = SPAWN.Queue()
    front.start("another", queue.get)
    front.report_when_still("another")
    now[0] += 1.0
    resolver.find_processes_at_pipes()
    assert len(resolver._Known.processes) == 2
    monkeypatch.undo()
    writer.send("")
    queue.put("")
    front.let_go()


def test_the_ends_of_a_pipe_tell_whether_they_are_ready(ends: Ends) -> None:
    reader, writer = ends[0].fileno(), ends[1].fileno()
    assert kernel.is_blocked(reader, "read")
    assert not kernel.is_blocked(writer, "write")
    os.set_blocking(writer, False)
    while not kernel.is_blocked(writer, "write"):
        os.write(writer, bytes(4096))
    assert not kernel.is_blocked(reader, "read")


def test_the_processes_at_a_pipe_are_those_with_the_right_end(
    ends: Ends, child: Callable[[int], subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = ends[0].fileno(), ends[1].fileno()
    pipe = kernel.other_end_at(reader)
    assert pipe is not None
    assert pipe == kernel.other_end_at(writer)
    assert kernel.processes_at(pipe, "write") == frozenset({os.getpid()})
    other = child(writer)
    assert kernel.processes_at(pipe, "write") == frozenset({os.getpid(), other.pid})
    assert kernel.processes_at(pipe, "read") == frozenset({os.getpid()})
    monkeypatch.setattr(kernel, "DESCRIPTORS_MAX", 3)
    assert kernel.processes_at(pipe, "write") is None


def stack_of_feeder(queue: Any) -> CallStack:
    ident = queue._thread.ident
    return CallStack(tuple(frames_of_threads()[ident]), ident)


def test_the_processes_at_a_pipe_are_unknown_if_one_of_the_session_cannot_be_read_or_listed(
    ends: Ends, child: Callable[[int], subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    end = kernel.other_end_at(ends[0].fileno())
    assert end is not None
    other = child(ends[1].fileno())
    assert kernel.processes_at(end, "write") == frozenset({os.getpid(), other.pid})
    listdir = os.listdir

    def refuse(path: Path) -> list[str]:
        if str(path) == f"/proc/{other.pid}/fd":
            raise PermissionError
        return listdir(path)

    with monkeypatch.context() as unreadable:  # neither are its other files, under hidepid=1
        unreadable.setattr(child_processes, "_stat_of", lambda _: ("", []))
        unreadable.setattr(os, "listdir", refuse)
        assert kernel.processes_at(end, "write") is None
    monkeypatch.setattr(kernel, "shows_all_processes", lambda: False)
    assert kernel.processes_at(end, "write") is None


def test_a_queues_thread_stands_aside_while_it_has_no_item() -> None:
    queue = SPAWN.Queue()
    queue.put("")
    assert queue.get() == ""
    end = time.monotonic() + PATIENCE_SECONDS
    while not work._stands_aside(stack_of_feeder(queue)):
        assert time.monotonic() < end
    queue.put(bytes(FULL))
    assert not work._stands_aside(stack_of_feeder(queue))
    assert len(queue.get()) == FULL
    queue.close()
    queue.join_thread()


def test_a_thread_that_begins_after_the_cut_is_a_doubt_about_the_work() -> None:
    own, end = work.OwnWork(), threading.Event()
    party, stranger = PartyName("front/thread:MainThread"), PartyName("front/thread:other")
    own._quiet = ((time.monotonic(), frozenset({party}), frozenset(frames_of_threads())),)
    assert not own.doubt_of(party)
    thread = threading.Thread(target=end.wait)
    thread.start()
    assert "another thread" in own.doubt_of(party)
    assert not own.doubt_of(stranger)
    end.set()
    thread.join()


def test_the_agents_log_is_at_work_if_it_may_write_to_a_queue() -> None:
    log = LogQueue()
    log.begin()
    ident = log._writer.ident
    assert ident is not None
    stack = CallStack(tuple(frames_of_threads()[ident]), ident)
    own, queue = logging.getLogger("stilltrue"), SPAWN.Queue()
    with no_handlers():
        assert work._stands_aside(stack)
        own.addHandler(logging.StreamHandler())
        assert work._stands_aside(stack)
        own.addHandler(logging.handlers.QueueHandler(queue))
        assert not work._stands_aside(stack)
    queue.close()
    log.end()


@contextmanager
def no_handlers() -> Iterator[None]:
    """The root logger and the agent's have no handlers; what is added to them is removed at the end."""
    loggers = [logging.getLogger(), logging.getLogger("stilltrue")]
    before = [logger.handlers for logger in loggers]
    for logger in loggers:
        logger.handlers = []
    yield
    for logger, handlers in zip(loggers, before, strict=True):
        logger.handlers = handlers


_FEEDS = """
def feed(request_iterator, go):
    def consume_request_iterator():
        request_iterator
        go.wait()
    consume_request_iterator()
"""


@pytest.mark.parametrize(("of", "aside"), [(work._CONNECTS, True), (__file__, False)], ids=["ours", "another's"])
def test_only_the_thread_that_sends_the_agents_own_stream_stands_aside(of: str, aside: bool) -> None:
    names: dict[str, Any] = {}
    exec(compile(_FEEDS, grpc._channel.__file__, "exec"), names)
    exec(compile("def requests():\n    yield", of, "exec"), names)
    go = threading.Event()
    thread = threading.Thread(target=names["feed"], args=(names["requests"](), go), daemon=True)
    thread.start()
    try:
        while not (frames := frames_of_threads().get(thread.ident or 0)) or frames[0].f_code.co_name != "wait":
            time.sleep(0.01)
        assert work._stands_aside(CallStack(tuple(frames), thread.ident or 0)) is aside
    finally:
        go.set()
        thread.join()
