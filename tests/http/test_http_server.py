"""The standard library's HTTP server: what it serves is recorded once, and no program notices."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from socketserver import ForkingMixIn
from typing import Any
from xmlrpc.client import ServerProxy
from xmlrpc.server import SimpleXMLRPCServer

import pytest

import stilltrue
from stilltrue.agent import Agent
from stilltrue.http.headers import OURS
from tests.client.look.worlds import look_in_its_wait, report_of, report_when

pytestmark = pytest.mark.slow

SECONDS_MAX = 30.0


@pytest.fixture
def agent() -> Iterator[Agent]:
    yield stilltrue.instrument(service="here", instance="here", detector="127.0.0.1:1")
    stilltrue.uninstrument()


@contextmanager
def serving(server: Any) -> Iterator[int]:
    """Serve in a thread; yields the port."""
    with server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join(SECONDS_MAX)
        assert not thread.is_alive()


def answering(answer: Callable[[Any], None]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            answer(self)

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing."""

    return Handler


def counted(agent: Agent) -> tuple[int, int, int]:
    """The calls so far, and those that are being made and served now."""
    with agent.live.lock:
        agent.live.catch_up()
        recorder = agent.live.recorder
        return recorder.calls, len(recorder.calls_made), len(recorder.calls_served)


def until_over(agent: Agent, calls: int) -> None:
    end = threading.Event()
    for _ in range(int(SECONDS_MAX * 100)):
        if counted(agent) == (calls, 0, 0):
            return
        end.wait(0.01)
    assert counted(agent) == (calls, 0, 0)


def asked(port: int, data: bytes) -> bytes:
    """What a plain client gets that sends these bytes."""
    with socket.create_connection(("127.0.0.1", port), SECONDS_MAX) as client:
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: client.recv(4096), b""))


def test_a_request_that_asks_before_it_sends_its_body_gets_one_stamped_reply(agent: Agent) -> None:
    bodies = list[bytes]()

    def answer(handler: Any) -> None:
        bodies.append(handler.rfile.read(4))
        handler.send_response(201)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), answering(answer))) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS_MAX)
        for _ in range(2):  # on one connection
            connection.request("POST", "/orders/7?secret=1", b"body", {"Expect": "100-continue"})
            reply = connection.getresponse()
            assert (reply.status, reply.read(), set(OURS) & {name.lower() for name in reply.headers}) == (201, b"", set())
        connection.close()
        until_over(agent, 4)
    assert bodies == [b"body"] * 2
    assert agent.live.faults == 0


def test_handlers_see_no_header_of_ours_and_pass_none_on(agent: Agent) -> None:
    seen = list[str]()

    def answer(handler: Any) -> None:
        seen.extend(name.lower() for name in handler.headers)
        handler.send_response(200)
        handler.send_header("Stilltrue-Stamp", "forged")
        handler.send_header("Connection", "close")
        handler.end_headers()

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), answering(answer))) as port:
        reply = asked(port, b"POST / HTTP/1.1\r\nHost: here\r\nStilltrue-Stamp: a;b;c\r\nStilltrue-From: 1.2.3.4 5\r\n\r\n")
    assert seen == ["host"]
    assert b"stilltrue" not in reply.lower()


@pytest.mark.parametrize(
    "data",
    [b"", b"nonsense\r\n\r\n", b"PUT / HTTP/1.1\r\n\r\n", b"POST http://here/x HTTP/1.1\r\n\r\n", b"POST / HTTP/9\r\n\r\n"],
)
def test_requests_that_are_not_served_leave_nothing_behind(agent: Agent, data: bytes) -> None:
    def refuse(handler: Any) -> None:
        handler.send_error(403)

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), answering(refuse))) as port:
        asked(port, data)
        until_over(agent, counted(agent)[0])
    assert agent.live.faults == 0


def test_a_handler_that_fails_ends_its_request(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(handler: Any) -> None:
        raise ValueError("on purpose")

    monkeypatch.setattr(ThreadingHTTPServer, "handle_error", lambda *_: None)
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), answering(fail))) as port:
        assert asked(port, b"POST / HTTP/1.1\r\n\r\n") == b""
        until_over(agent, 1)


def test_a_server_in_a_handler_of_another_is_part_of_its_request(agent: Agent) -> None:
    inner = HTTPServer(("127.0.0.1", 0), answering(lambda handler: handler.send_error(410)))

    def answer(handler: Any) -> None:
        asking = threading.Thread(target=asked, args=(inner.server_port, b"POST / HTTP/1.1\r\n\r\n"))
        asking.start()
        inner.handle_request()
        asking.join(SECONDS_MAX)
        handler.send_error(404)

    with inner, serving(ThreadingHTTPServer(("127.0.0.1", 0), answering(answer))) as port:
        assert b" 404 " in asked(port, b"POST / HTTP/1.1\r\nConnection: close\r\n\r\n")
        until_over(agent, 1)


def test_a_server_that_forks_for_each_request_is_not_recorded(agent: Agent) -> None:
    class Forking(ForkingMixIn, HTTPServer):
        """Serves each request in a process of its own."""

    with serving(Forking(("127.0.0.1", 0), answering(lambda handler: handler.send_error(404)))) as port:
        assert b" 404 " in asked(port, b"POST / HTTP/1.1\r\nConnection: close\r\n\r\n")
    assert counted(agent) == (0, 0, 0)


def test_a_remote_procedure_call_is_recorded_at_both_ends(agent: Agent) -> None:
    server = SimpleXMLRPCServer(("127.0.0.1", 0), logRequests=False)
    server.register_function(lambda: counted(agent), "counted")
    with serving(server) as port, ServerProxy(f"http://127.0.0.1:{port}") as proxy:
        assert proxy.counted() == [2, 1, 1]
        until_over(agent, 2)
    assert agent.live.faults == 0


def test_a_reply_that_is_never_asked_for_is_in_doubt(agent: Agent) -> None:
    arrived = threading.Event()
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), answering(lambda handler: arrived.set()))) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS_MAX)
        connection.request("POST", "/")
        assert arrived.wait(SECONDS_MAX)
        assert counted(agent)[1] == 1
        connection.close()
        assert counted(agent)[1] == 0
        assert len(agent.live.recorder._in_doubt) == 1


def serve_later(server: HTTPServer, end: threading.Event) -> threading.Thread:
    def run() -> None:
        end.wait(600)
        server.handle_request()

    return threading.Thread(target=run, name="later")


def close_later(server: HTTPServer, end: threading.Event) -> threading.Thread:
    def close(server: HTTPServer) -> None:
        server.server_close()

    return threading.Thread(target=lambda: close(server) if end.wait(600) else None, name="later")


def only_wait(server: HTTPServer, end: threading.Event) -> threading.Thread:
    return threading.Thread(target=lambda: (end.wait(600), server.server_port), name="later")


@contextmanager
def asking_itself(make: Callable[[HTTPServer, threading.Event], threading.Thread]) -> Iterator[None]:
    """A server with one thread that asks itself; another thread is made by ``make``."""
    end = threading.Event()

    def answer(handler: Any) -> None:
        if handler.path == "/outer":
            connection = http.client.HTTPConnection("127.0.0.1", server.server_port)
            connection.request("POST", "/inner")
            connection.getresponse()
            connection.close()
        handler.send_error(404)

    server = HTTPServer(("127.0.0.1", 0), answering(answer))
    other = make(server, end)
    with server:
        asking = threading.Thread(target=asked, args=(server.server_port, b"POST /outer HTTP/1.1\r\nConnection: close\r\n\r\n"))
        serving = threading.Thread(target=server.handle_request)
        for one in (other, serving, asking):
            one.start()
        try:
            yield
        finally:
            end.set()
            other.join(SECONDS_MAX)
        if make is only_wait:
            server.handle_request()
        for one in (serving, asking):
            one.join(SECONDS_MAX)
            assert not one.is_alive()


@pytest.mark.parametrize(("make", "frees"), [(serve_later, True), (close_later, True), (only_wait, False)])
def test_who_may_accept_the_request_or_close_the_server_is_a_way_out(
    agent: Agent, make: Callable[[HTTPServer, threading.Event], threading.Thread], frees: bool
) -> None:
    with asking_itself(make):
        seen = look_in_its_wait(agent, "here/POST:outer")
        assert [["later" in way.text for way in seen.ways_out], seen.doubt] == [[True] * frees, ""]


@pytest.mark.parametrize("timeout", [None, 600.0])
def test_the_timeout_of_the_socket_bounds_the_wait(agent: Agent, timeout: float | None) -> None:
    goes_on = threading.Event()

    def answer(handler: Any) -> None:
        goes_on.wait(SECONDS_MAX)
        handler.send_error(404)

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), answering(answer))) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
        connection.request("POST", "/slow")
        asking = threading.Thread(target=connection.getresponse, name="asking")
        asking.start()
        report_when(agent, lambda report: bool(report.served))
        assert not report_of(agent).waits, "another thread than the caller asks for the reply"
        goes_on.set()
        asking.join(SECONDS_MAX)
        connection.close()
        goes_on.clear()

        def ask() -> None:
            own = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
            own.request("POST", "/slow")
            own.getresponse().read()
            own.close()

        asking = threading.Thread(target=ask, name="asking")
        asking.start()
        (wait,) = report_when(agent, lambda report: bool(report.waits)).waits
        assert (wait.waiter, wait.deadline is None) == ("here/thread:asking", timeout is None)
        goes_on.set()
        asking.join(SECONDS_MAX)
        until_over(agent, 4)


def test_a_request_on_a_connection_that_the_server_has_closed_fails_as_ever(agent: Agent) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connection = http.client.HTTPConnection("127.0.0.1", listener.getsockname()[1], timeout=SECONDS_MAX)
        connection.connect()
        accepted, _ = listener.accept()
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # so that closing it is a reset
        accepted.close()

    def ask() -> None:
        connection.request("POST", "/")
        connection.getresponse()

    with pytest.raises(OSError, match=r"reset|Broken pipe|closed"):
        ask()
    connection.close()
    assert counted(agent)[1:] == (0, 0)
    assert agent.live.faults == 0


class Equal(http.client.HTTPConnection):
    """Equals another one to the same host, and so has no hash."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equal) and other.host == self.host

    __hash__ = None  # type: ignore[assignment]


def test_a_connection_without_a_hash_works_as_ever(agent: Agent) -> None:
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), answering(lambda handler: handler.send_error(404)))) as port:
        connection = Equal("127.0.0.1", port, timeout=SECONDS_MAX)
        connection.request("POST", "/")
        reply = connection.getresponse()
        assert (reply.status, b"404" in reply.read()) == (404, True)
        connection.close()
