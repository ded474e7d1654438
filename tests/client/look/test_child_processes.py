"""Child processes that a handler has started: at work until they end, or have joined as members of their own."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import grpc
import pytest

from stilltrue import Agent
from stilltrue.model import SnapshotId
from stilltrue.protocol.requests.look import LookRequest
from stilltrue.runtime.declared import idle_declaration
from stilltrue.runtime.introspection.linux import child_processes as listing
from stilltrue.runtime.introspection.linux import child_threads
from stilltrue.runtime.introspection.linux.child_threads import threads_of
from stilltrue.runtime.introspection.linux.signal_senders import command_line_of
from stilltrue.runtime.look.termination import reactivation
from stilltrue.runtime.membership.member_mark import MemberMark
from tests.client.look.worlds import PATIENCE_SECONDS, serving

_READS = "import sys; print('begun', flush=True); sys.stdin.read()"
_JOINS = f"from stilltrue.runtime.membership.member_mark import MemberMark; MemberMark().set(); {_READS}"


@contextmanager
def child(*command: str) -> Iterator[subprocess.Popen[str]]:
    """A child process that has begun, until its standard input is closed."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(PATIENCE_SECONDS)
            finally:
                process.kill()


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def children_at_work(agent: Agent) -> list[str]:
    found = agent.looker().look(LookRequest(snapshot=SnapshotId(1), activity=True)).unaccounted
    return [text for text in found if text.startswith("child process")]


def wait_for_next_sleep(pid: int) -> None:
    """Wait until a process has just gone to sleep: on a busy machine one that wakes may have to wait for a processor."""
    turns = re.compile(r"^voluntary_ctxt_switches:\s*(\d+)$", re.M)

    def slept() -> str:
        return str(turns.findall(Path(f"/proc/{pid}/status").read_text()))

    before = slept()
    wait_until(lambda: slept() != before and not Path(f"/proc/{pid}/syscall").read_text().startswith("running"))


@contextmanager
def called_once(agent: Agent, before: Callable[[], None] | None = None) -> Iterator[None]:
    """The process of ``agent`` has served its first call, which declares what was there ``before``."""
    with serving(agent, Do=lambda request, _: request) as address, grpc.insecure_channel(address) as channel:
        do: Any = channel.unary_unary("/s/Do")
        if before is not None:
            grpc.channel_ready_future(channel).result(PATIENCE_SECONDS)
            before()
        do(b"")
        yield


@pytest.fixture
def called(alone: Callable[..., Agent]) -> Iterator[Agent]:
    front = alone("front")
    with called_once(front):
        yield front


def test_a_child_process_started_later_is_active_until_it_ends(called: Agent) -> None:
    assert children_at_work(called) == []
    with child(sys.executable, "-c", _READS) as process:
        (text,) = children_at_work(called)
        assert text.startswith(f"child process {process.pid} (python")
        assert "which has not joined, started after" in text
    assert children_at_work(called) == []


def test_a_zombie_child_process_has_ended(called: Agent) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    wait_until(lambda: children_at_work(called) == [])
    assert process.wait(PATIENCE_SECONDS) == 0


def test_child_processes_started_before_the_declaration_are_covered(alone: Callable[..., Agent]) -> None:
    front = alone("front")
    with child(sys.executable, "-c", _READS), called_once(front):
        assert children_at_work(front) == []


_WORKS = {
    "sleeps": "time.sleep(600)",
    "computes": "any(map(bool, iter(int, 1)))",
    "awaits an answer": "socket.create_connection(sys.argv[1].rsplit(':', 1)).recv(1)",
    "in another thread": "threading.Thread(target=time.sleep, args=(600,)).start()",
}
_FED = "import socket, sys, threading, time; print('begun', flush=True)\nfor line in sys.stdin:\n if line == 'work\\n': {}"


@pytest.mark.parametrize("work", _WORKS)
def test_an_earlier_child_process_that_has_been_given_work_is_active(alone: Callable[..., Agent], work: str) -> None:
    front = alone("front")
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with child(sys.executable, "-c", _FED.format(_WORKS[work]), address) as process, called_once(front):
            tell(process, "rest")
            is_at_rest_again(process)
            assert children_at_work(front) == []
            tell(process, "work")
            wait_until(lambda: children_at_work(front) != [])
            (text,) = children_at_work(front)
            assert text.startswith(f"child process {process.pid} (python")
            assert "which has not joined, at work since" in text
            process.kill()


def tell(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def is_at_rest_again(process: subprocess.Popen[str]) -> None:
    """Wait until a child has read all that it was told: it is where it was before."""
    found = listing.process_at(process.pid)
    assert found is not None
    wait_until(lambda: not threads_of([found])[found.key].is_at_work(None))


@pytest.mark.parametrize("name", ["grpcurl", "event_engine"])
def test_a_child_process_counts_whatever_its_name_is(alone: Callable[..., Agent], name: str) -> None:
    named = f"import ctypes; ctypes.CDLL(None).prctl(15, {name.encode()!r}); {_FED.format(_WORKS['in another thread'])}"
    front = alone("front")
    with child(sys.executable, "-c", named) as process, called_once(front):
        assert children_at_work(front) == []
        tell(process, "work")
        wait_until(lambda: children_at_work(front) != [])
        assert f"({name})" in children_at_work(front)[0]
        process.kill()


_LOOP = """import selectors, socket, sys
loop, host, port = selectors.DefaultSelector(), *sys.argv[1].rsplit(":", 1)
def connects():
    peer = socket.create_connection((host, int(port)))
    loop.register(peer, selectors.EVENT_READ, lambda: peer.recv(1))
    loop.register(sys.stdin, selectors.EVENT_READ, lambda: peer.send(sys.stdin.readline().encode()[:1]))
def listens():
    server = socket.create_server((host, int(port)))
    loop.register(server, selectors.EVENT_READ, lambda: serves(server.accept()[0]))
def serves(peer):
    loop.register(peer, selectors.EVENT_READ, lambda: peer.send(peer.recv(1)))
globals()[sys.argv[2]]()
print("begun", flush=True)
while True:
    for key, _ in loop.select():
        key.data()
"""


def test_a_child_process_whose_event_loop_awaits_an_answer_over_the_network_is_active(alone: Callable[..., Agent]) -> None:
    front = alone("front")
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with child(sys.executable, "-c", _LOOP, address, "connects") as process, server.accept()[0] as peer, called_once(front):
            wait_until(lambda: children_at_work(front) == [])
            tell(process, "work")
            assert peer.recv(1) == b"w"
            wait_until(lambda: children_at_work(front) != [])
            process.kill()


def test_a_child_process_rests_while_its_event_loop_waits_for_its_clients(alone: Callable[..., Agent]) -> None:
    front = alone("front")
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = free.getsockname()
    with child(sys.executable, "-c", _LOOP, "{}:{}".format(*address), "listens") as process, called_once(front):
        with socket.create_connection(address) as client:
            client.send(b"?")
            assert client.recv(1) == b"?"
            wait_until(lambda: children_at_work(front) == [])
        process.kill()


def test_a_thread_that_reads_a_file_does_not_rest(tmp_path: Path) -> None:
    def rests(descriptor: int) -> bool:
        standing = child_threads.Standing(call=0, stack=1, instruction=1, reads=descriptor, endless=True, is_poll=False)
        return not child_threads.ChildThreads(os.getpid(), {1: standing}, 0).is_at_work(None)

    with (tmp_path / "file").open("w+") as file, Path(os.devnull).open() as device:
        reading, writing = os.pipe()
        assert not rests(file.fileno())
        assert rests(device.fileno())
        assert rests(reading)
        os.close(reading)
        os.close(writing)


_TIMED = "import time; print('begun', flush=True)\nwhile True: time.sleep(0.5)"
_LATE = "import sys, time; print('begun', flush=True); time.sleep(0.5); sys.stdin.read()"
_LATE_LOOP = "import sys, time, select; print('begun', flush=True); time.sleep(0.5); select.select([sys.stdin], [], [])"


def test_an_earlier_child_process_with_its_own_timer_is_covered(alone: Callable[..., Agent]) -> None:
    front = alone("front")
    with child(sys.executable, "-c", _TIMED) as process, called_once(front, lambda: wait_for_next_sleep(process.pid)):
        for _ in range(5):
            wait_until(lambda: children_at_work(front) == [])
            time.sleep(0.2)
        process.kill()


@pytest.mark.parametrize("program", [_LATE, _LATE_LOOP])
def test_an_earlier_child_process_that_was_still_starting_rests_once_it_waits_for_input(
    alone: Callable[..., Agent], program: str
) -> None:
    front = alone("front")
    with child(sys.executable, "-c", program) as process, called_once(front):
        is_at_rest_again(process)
        assert children_at_work(front) == []


def test_where_the_calls_of_processes_are_not_shown_a_child_that_has_run_is_active(
    alone: Callable[..., Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_threads, "_standings", lambda *_: None)
    front = alone("front")
    with child(sys.executable, "-c", _FED.format(_WORKS["computes"])) as process, called_once(front):
        assert children_at_work(front) == []
        tell(process, "work")
        wait_until(lambda: children_at_work(front) != [])
        process.kill()


def test_idle_covers_existing_child_processes(called: Agent) -> None:
    with child(sys.executable, "-c", _READS):
        assert children_at_work(called)
        called.idle()
        assert children_at_work(called) == []


def test_children_of_a_shell_are_found(called: Agent) -> None:
    with child("/bin/sh", "-c", f'"{sys.executable}" -c "{_READS}"; true') as shell:
        texts = children_at_work(called)
        assert any(text.startswith(f"child process {shell.pid} (sh)") for text in texts)
        assert any("(python" in text for text in texts)
        assert len(texts) == 2


@pytest.fixture
def own_group() -> Iterator[None]:
    """Other tests' orphans are in other process groups."""
    before = os.getpgrp()
    with suppress(PermissionError):  # it leads its session
        os.setpgid(0, 0)
    yield
    with suppress(PermissionError):
        os.setpgid(0, before)


@pytest.mark.usefixtures("own_group")
def test_a_process_that_a_shell_has_left_behind_is_active(called: Agent, tmp_path: Path) -> None:
    ends = tmp_path / "end"
    os.system(f"while ! test -e {ends}; do sleep 0.1; done & true")
    found = children_at_work(called)
    assert any("(sh), which has not joined, started after" in text for text in found)
    ends.touch()
    wait_until(lambda: children_at_work(called) == [])


def leave_daemon(ends: Path, started: str | None) -> None:
    """Leave a daemon behind, in a session of its own, until the file ``ends`` exists."""
    environment = {name: text for name, text in os.environ.items() if name != listing.STARTED}
    environment |= {} if started is None else {listing.STARTED: started}
    loop = f"while ! test -e {ends}; do sleep 0.1; done; exit"
    subprocess.run(["/bin/sh", "-c", f"setsid sh -c '{loop}' & true"], env=environment, check=True)


def daemons(ends: Path, begun: int) -> list[listing.ChildProcess]:
    """The orphans that wait for the file ``ends``, once they have begun to."""
    return [one for one in listing.orphans(begun, ()) if one.name == "sh" and str(ends).encode() in command_line_of(one.pid)]


def one_daemon(folder: Path, is_run: str) -> tuple[Path, int, listing.ChildProcess]:
    """Leave a daemon behind: the file that ends it, the clock ticks before it began, and its process."""
    ends, begun = folder / "end", listing.boot_ticks()
    leave_daemon(ends, is_run)
    found = list[listing.ChildProcess]()

    def is_alone() -> bool:  # what it forks has its name for a moment
        found[:] = daemons(ends, begun)
        return len(found) == 1

    wait_until(is_alone)
    return ends, begun, found[0]


@pytest.fixture
def is_run(monkeypatch: pytest.MonkeyPatch) -> str:
    """The tests' process was started by `stilltrue run`, so to say, and its children know."""
    monkeypatch.setenv(listing.STARTED, str(os.getpid()))
    return str(os.getpid())


def test_a_daemon_of_a_program_that_was_started_by_run_is_active(called: Agent, tmp_path: Path, is_run: str) -> None:
    ends = tmp_path / "end"
    leave_daemon(ends, is_run)
    wait_until(lambda: any("(sh), which has not joined, started after" in text for text in children_at_work(called)))
    ends.touch()
    wait_until(lambda: children_at_work(called) == [])


@pytest.mark.parametrize("started", [None, "1", f"{os.getpid()}0"], ids=["none", "process 1", "another one"])
def test_a_daemon_of_another_program_does_not_count(tmp_path: Path, is_run: str, started: str | None) -> None:
    ends, begun = tmp_path / "end", listing.boot_ticks()
    leave_daemon(ends, is_run)
    leave_daemon(tmp_path / "other", started)
    wait_until(lambda: len(daemons(ends, begun)) == 1)
    time.sleep(0.2)  # the other one has begun, too
    assert daemons(tmp_path / "other", begun) == []
    ends.touch()
    (tmp_path / "other").touch()


def test_a_daemon_counts_only_from_its_beginning_and_without_its_children(tmp_path: Path, is_run: str) -> None:
    ends, begun, daemon = one_daemon(tmp_path, is_run)
    wait_until(lambda: listing.children_of(daemon.pid) != [])
    assert {one.pid for one in listing.orphans(begun, ())}.isdisjoint(listing.children_of(daemon.pid))
    assert daemons(ends, daemon.started + 1) == []
    assert daemon not in listing.orphans(begun, {daemon.pid})
    ends.touch()


def test_a_daemon_that_was_left_to_process_1_counts_though_that_is_the_program(
    tmp_path: Path, is_run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends, begun, daemon = one_daemon(tmp_path, is_run)
    has_started, stat_of = listing._has_started, listing._stat_of
    session_of_first = ["1"]

    def as_in_container(pid: str) -> tuple[str, list[str]]:
        before, fields = stat_of(pid)
        if pid == str(daemon.pid):
            fields[1] = "1"
        return before, ["S", "0", "1", session_of_first[0]] if pid == "1" else fields

    monkeypatch.setattr(listing, "_has_started", lambda started, pid: pid == "1" or has_started(started, pid))
    monkeypatch.setattr(listing, "_stat_of", as_in_container)
    assert daemons(ends, begun) == [daemon]
    session_of_first[0] = stat_of(str(daemon.pid))[1][3]  # one that a supervisor has started, in another group
    assert daemons(ends, begun) == []
    ends.touch()


def test_a_process_that_was_put_here_from_outside_does_not_count(
    tmp_path: Path, is_run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends, begun, daemon = one_daemon(tmp_path, is_run)
    stat_of = listing._stat_of

    def as_a_probe(pid: str) -> tuple[str, list[str]]:
        before, fields = stat_of(pid)
        if pid == str(daemon.pid):
            fields[1] = "0"
        return before, fields

    monkeypatch.setattr(listing, "_stat_of", as_a_probe)
    assert daemons(ends, begun) == []
    ends.touch()


@pytest.mark.usefixtures("own_group")
@pytest.mark.parametrize("foreign_numbers", [False, True])
def test_a_group_is_asked_for_only_where_proc_has_the_numbers_of_the_own_namespace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, foreign_numbers: bool
) -> None:
    ends = tmp_path / "end"
    begun = listing.boot_ticks()
    os.system(f"while ! test -e {ends}; do sleep 0.1; done & true")
    (shell,) = [one for one in listing.orphans(begun, ()) if one.name == "sh"]
    monkeypatch.setattr(os, "getpgid", lambda _: os.getpgrp() + 1)
    if foreign_numbers:
        monkeypatch.setattr(listing, "_target_of", lambda _: "0")
    assert (shell.key in {one.key for one in listing.orphans(begun, ())}) == foreign_numbers
    ends.touch()
    wait_until(lambda: listing.process_at(shell.pid) is None)


@pytest.mark.usefixtures("own_group")
def test_a_process_of_the_group_that_was_there_before_does_not_count(tmp_path: Path) -> None:
    ends = tmp_path / "end"
    begun = listing.boot_ticks()
    os.system(f"while ! test -e {ends}; do sleep 1; done & true")
    (shell,) = [one for one in listing.orphans(begun, ()) if one.name == "sh"]
    assert listing.orphans(begun, {one.pid for one in listing.orphans(begun, ())}) == []
    assert shell.key not in {one.key for one in listing.orphans(shell.started + 1, ())}
    ends.touch()


@pytest.mark.usefixtures("own_group")
def test_a_process_that_is_left_behind_while_the_declaration_is_made_is_active(
    called: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = tmp_path / "end"

    def leaves_one_behind() -> list[listing.ChildProcess]:
        found = listing.child_processes()
        os.system(f"while ! test -e {ends}; do sleep 0.1; done & true")
        time.sleep(0.1)  # several clock ticks
        return found

    monkeypatch.setattr(idle_declaration, "child_processes", leaves_one_behind)
    called.idle()
    try:
        assert any("(sh), which has not joined, started after" in text for text in children_at_work(called))
    finally:
        ends.touch()


def test_a_joined_child_process_is_active_until_every_snapshot_includes_it(
    called: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    with child(sys.executable, "-c", _JOINS):
        (text,) = children_at_work(called)
        assert "which has just joined" in text
        monkeypatch.setattr(reactivation, "MEMBER_SECONDS_MIN", 0.0)
        assert children_at_work(called) == []


_JOINS_WHEN_FED = f"import sys; print('begun', flush=True); sys.stdin.readline(); {_JOINS}"


def test_an_earlier_child_process_that_has_just_joined_is_active(
    alone: Callable[..., Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    front = alone("front")
    with child(sys.executable, "-c", _JOINS_WHEN_FED) as process, called_once(front):
        tell(process, "work")
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        is_at_rest_again(process)
        (text,) = children_at_work(front)
        assert "which has just joined, after" in text
        monkeypatch.setattr(reactivation, "MEMBER_SECONDS_MIN", 0.0)
        assert children_at_work(front) == []


def test_a_child_process_that_was_a_member_before_is_covered(alone: Callable[..., Agent]) -> None:
    front = alone("front")
    with child(sys.executable, "-c", _JOINS), called_once(front):
        assert children_at_work(front) == []


@pytest.mark.parametrize("kind", ["pool", "executor"])
@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
@pytest.mark.slow
def test_pool_workers_are_active_while_the_pool_has_items(called: Agent, kind: str, method: str) -> None:
    context: Any = get_context(method)
    reading, writing = context.Pipe()
    with ExitStack() as stack:
        pool: Any = context.Pool(2) if kind == "pool" else ProcessPoolExecutor(2, mp_context=context)
        stack.enter_context(pool)
        submit = pool.apply_async if kind == "pool" else pool.submit
        assert submit(abs, (-1,)).get(PATIENCE_SECONDS) == 1 if kind == "pool" else submit(abs, -1).result() == 1
        wait_until(lambda: children_at_work(called) == [])
        result = submit(reading.recv)
        assert children_at_work(called)
        writing.send(b"")
        assert (result.get(PATIENCE_SECONDS) if kind == "pool" else result.result()) == b""
        wait_until(lambda: children_at_work(called) == [])


def test_without_lists_of_children_every_process_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with child(sys.executable, "-c", _READS) as process:
        assert process.pid in {one.pid for one in listing.child_processes()}
        assert process.pid in set(listing._children_by_parent(os.getpid()))


def test_a_member_mark_is_visible_to_the_parent_and_removable() -> None:
    mark = MemberMark()
    own = listing.process_at(os.getpid())
    assert own is not None
    assert listing.joined_at(own) is None
    mark.set()
    mark.set()
    joined = listing.joined_at(own)
    assert joined is not None
    assert -0.001 <= listing.clock() - joined < PATIENCE_SECONDS
    mark.clear()
    mark.clear()
    assert listing.joined_at(own) is None


def test_without_memfd_a_member_mark_is_an_unlinked_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    test_a_member_mark_is_visible_to_the_parent_and_removable()
    assert not list(Path("/dev/shm").glob(f"{listing.MARK}*"))


def test_a_daemon_that_closes_all_files_keeps_those_that_it_opens_then() -> None:
    mark = MemberMark()
    mark.set()
    descriptor = mark._descriptor
    assert descriptor is not None
    os.close(descriptor)
    other = os.open(os.devnull, os.O_RDONLY)
    try:
        assert other == descriptor  # the system gives the lowest number
        mark.clear()
        os.fstat(other)
    finally:
        os.close(other)


def test_a_forked_child_has_no_mark_of_its_parent(alone: Callable[..., Agent]) -> None:
    front = alone("front")
    front.start()
    connection: Any = front._connection
    connection.mark.set()
    mark = connection.mark
    pid = os.fork()
    if pid == 0:
        os._exit(0 if mark._descriptor is None else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert mark._descriptor is not None


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
@pytest.mark.parametrize(
    ("options", "all_are_listed"),
    [("rw", True), ("rw,hidepid=1", True), ("rw,hidepid=2", False), ("rw,nosuid,hidepid=invisible,gid=5", False)],
)
def test_proc_may_be_mounted_so_that_it_does_not_list_all_processes(
    options: str, all_are_listed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self/mounts").write_text(f"sysfs /sys sysfs rw 0 0\nproc /proc proc {options} 0 0\n")
    monkeypatch.setattr(listing, "_PROC", tmp_path)
    assert listing.shows_all_processes() == all_are_listed
