"""A request that waits for a service's only thread or loop, which in turn waits for it, is a deadlock; near misses are not."""

from __future__ import annotations

import os
import re
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from detector.demo.harness import Harness
from stilltrue.model import PartyName
from stilltrue.runtime.introspection.frames import frames_of_threads
from stilltrue.runtime.transport import tcp
from stilltrue.runtime.transport.backlog import connection_between, connections_behind
from stilltrue.runtime.transport.blocked_servers import BlockedServer
from stilltrue.runtime.transport.channelz import namespace
from stilltrue.runtime.transport.tcp import ROWS_MAX, SOCKETS, Socket, are_ours_alone, ends_of, inodes_of, port_of
from tests.http.cycles import PROGRAMS, SECONDS_MAX, Start, ask, chain, get, kinds, until, until_true

live = [pytest.mark.live, pytest.mark.slow, pytest.mark.longer]
on_linux = pytest.mark.skipif(namespace() is None, reason="no /proc/self/net: Linux only")
UVICORNS = {"a/task:Task-1", "a/task:Task-2"}
"""uvicorn's own tasks: its main task and its lifespan. They wait for the loop that is held, one seen from the next cut on."""
KEEPS = "import sys; sys.stdout.write('here'); sys.stdout.flush(); sys.stdin.read()"


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=live) for kind in ("loop", "uvloop", "thread", "stdlib")])
def test_a_service_that_requests_itself_deadlocks(harness: Harness, start: Start, kind: str) -> None:
    a = start("alone.py", "a", kind)
    get(chain(f"{a.url}/pass", f"{a.url}/take"))
    verdict = until_true(harness, "deadlock")
    assert kinds(verdict["core"]) == {"a/GET:pass"}
    assert "blocks" in verdict["explanation"][0]
    (place,) = (one["stack"][0] for one in verdict["evidence"] if one["party"] in verdict["core"])
    assert re.search(rf"{re.escape(str(PROGRAMS / 'alone.py'))}:\d+ in ", place)


@pytest.mark.parametrize(
    "kinds_of",
    [pytest.param(("loop", "thread"), marks=live), pytest.param(("uvloop", "thread"), marks=[*live, pytest.mark.not_in_ci])],
)
def test_two_services_that_request_each_other_deadlock(harness: Harness, start: Start, kinds_of: tuple[str, str]) -> None:
    a, b = (start("alone.py", name, kind) for name, kind in zip("ab", kinds_of, strict=True))
    get(chain(f"{a.url}/pass", f"{b.url}/pass", f"{a.url}/take"))
    verdict = until_true(harness, "deadlock")
    assert kinds(verdict["core"]) == {"a/GET:pass", "b/GET:pass"}
    assert kinds(verdict["behind"]) <= UVICORNS


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("loop", marks=[*live, pytest.mark.not_in_ci]),
        *(pytest.param(kind, marks=live) for kind in ("uvloop", "stdlib")),
    ],
)
def test_more_clients_change_nothing_and_a_timeout_makes_it_a_gridlock(harness: Harness, start: Start, kind: str) -> None:
    a = start("alone.py", "a", kind)
    get(chain(f"{a.url}/pass", f"{a.url}/take", limit=f"&seconds={SECONDS_MAX * 2}"))
    for _ in range(3):
        get(f"{a.url}/take")
    verdict = until_true(harness, "gridlock")
    assert kinds(verdict["remainder"]) - UVICORNS == {"a/GET:pass"}
    get(f"{a.url}/take")
    assert ask(harness, "gridlock")["holds"] is not False
    assert ask(harness, "deadlock")["holds"] is not True


@pytest.mark.parametrize(
    "kind", [pytest.param("loop-twin", marks=live), pytest.param("thread-twin", marks=[*live, pytest.mark.not_in_ci])]
)
def test_another_process_that_could_accept_it_is_a_way_out(harness: Harness, start: Start, kind: str) -> None:
    a = start("alone.py", "a", kind)
    get(chain(f"{a.url}/pass", f"{a.url}/take"))

    def is_stuck() -> bool:
        return "the reply to GET /take" in harness.run("stacks", a.name).stdout

    until("the request to be made", is_stuck)
    for _ in range(4):
        assert ask(harness, "deadlock")["holds"] is not True


# -- the threads of a process ------------------------------------------------------------------------------------------


@on_linux
def test_only_the_accepting_thread_holds_up_its_connections(ends: tuple[socket.socket, socket.socket]) -> None:
    listener, caller = ends
    holder = BlockedServer(PartyName("a/X#1"), acceptor=listener)
    with serving_from(listener) as first:
        (found,) = connections_behind(holder, [frames_of_threads()[first]], 0.0)
        dialled = ends_of(caller.getsockname(), caller.getpeername())
        assert dialled is not None
        (number,) = inodes_of([caller.fileno()])
        assert connection_between(dialled, 0.0) == replace(found, socket=number), "both ends give it the same name"
        with serving_from(listener) as second:
            threads = frames_of_threads()
            assert connections_behind(holder, [threads[first], threads[second]], 0.0) == [], "the other socket may accept it"
    assert connections_behind(holder, [], 0.0) == [], "no accepting thread is found"


class Server(socketserver.TCPServer):
    """Serves an existing socket; requests stay in its queue."""

    def __init__(self, listener: socket.socket) -> None:
        super().__init__(("127.0.0.1", 0), socketserver.BaseRequestHandler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.stands, self.goes_on = threading.Event(), threading.Event()

    def service_actions(self) -> None:
        self.stands.set()
        self.goes_on.wait(SECONDS_MAX)

    def get_request(self) -> tuple[socket.socket, object]:
        raise OSError("left where it is")


@contextmanager
def serving_from(listener: socket.socket) -> Iterator[int]:
    """The identity of a thread that is serving a server."""
    server = Server(listener)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    assert server.stands.wait(SECONDS_MAX)
    assert thread.ident is not None
    yield thread.ident
    server.goes_on.set()
    server.shutdown()
    thread.join()


# -- what the kernel tells ---------------------------------------------------------------------------------------------


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A listening socket, and one that is connected to it and not accepted."""
    with ExitStack() as open_ones:
        listener = open_ones.enter_context(socket.create_server(("127.0.0.1", 0)))
        yield listener, open_ones.enter_context(socket.create_connection(listener.getsockname()))


@on_linux
def test_a_connection_has_no_owner_until_it_is_accepted(ends: tuple[socket.socket, socket.socket]) -> None:
    listener, caller = ends
    known = ends_of(caller.getpeername(), caller.getsockname())

    def inode() -> int:
        (found,) = (one.inode for one in SOCKETS.read() or () if (one.local, one.remote) == known)
        return found

    assert inode() == 0
    with listener.accept()[0] as accepted:
        assert {inode()} == inodes_of([accepted.fileno()])
    (found,) = (one for one in SOCKETS.read() or () if {one.inode} == inodes_of([listener.fileno()]))
    assert (found.listens, port_of(found.local)) == (True, str(listener.getsockname()[1]))


@on_linux
def test_a_socket_is_exclusive_unless_another_process_has_it(ends: tuple[socket.socket, socket.socket]) -> None:
    listener, _ = ends
    inodes = inodes_of([listener.fileno()])
    assert are_ours_alone(inodes)
    with subprocess.Popen(
        [sys.executable, "-c", KEEPS], pass_fds=[listener.fileno()], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as keeper:
        assert keeper.stdout is not None
        assert keeper.stdin is not None
        assert keeper.stdout.read(4) == b"here"
        assert not are_ours_alone(inodes)
        keeper.stdin.close()
    assert are_ours_alone(inodes)


@on_linux
def test_an_inherited_socket_may_belong_to_any_process(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, "LISTEN_FDS", "1")
    assert not are_ours_alone(inodes_of([ends[0].fileno()]))


def test_connections_that_have_ended_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, rest = tmp_path / "tcp", "00000000:00000000 00:00000000 00000000     0        0"
    ended = f"   1: 0100007F:1F90 0100007F:1F91 06 {rest} 0 3 0\n"
    listens = f"   0: 0100007F:1F90 00000000:0000 0A {rest} 4711 1 0\n"
    monkeypatch.setattr(tcp, "_TABLES", (table,))
    table.write_text(f"  sl  local_address\n{2 * ROWS_MAX * ended}{listens}")
    assert tcp._read() == [Socket("127.0.0.1:8080", "0.0.0.0:0", 4711, listens=True)]
    table.write_text(f"  sl  local_address\n{(ROWS_MAX + 1) * listens}")
    with pytest.raises(OverflowError):
        tcp._read()


def test_a_socket_other_than_tcp_has_no_addresses() -> None:
    assert ends_of("/run/socket", "") is None
    assert ends_of(("::ffff:127.0.0.1", 5, 0, 0), ("::1", 6, 0, 0)) == ("127.0.0.1:5", "[::1]:6")
    assert ends_of(("nonsense", 5), ("::1", 6)) is None
