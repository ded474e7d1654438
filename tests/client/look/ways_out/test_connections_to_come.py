"""A handler of another server than gRPC's that would end a wait, if a connection came, is doubt like a method of gRPC's."""

from __future__ import annotations

import asyncio
import importlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from typing import Any

import pytest

from stilltrue import Agent
from tests.client.look.worlds import Stuck, look_at_caller

_CALLS: dict[int, Any] = {}


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    yield
    _CALLS.clear()


def calls_and_keeps_it(get: Any) -> None:
    call = _CALLS[0] = get.future(b"")
    call.result()


def give_up() -> None:
    for call in _CALLS.values():
        call.cancel()


class Cancels(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        give_up()


class Counts(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200, str(len(_CALLS)))


class Registry(HTTPServer):
    """A server that keeps the calls itself."""

    def __init__(self, calls: dict[int, Any], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.calls = calls


class CancelsOfServer(BaseHTTPRequestHandler):
    server: Registry

    def do_POST(self) -> None:
        self.server.calls.pop(0).cancel()


@contextmanager
def serving(server: Any) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, name="http")
    thread.start()
    yield
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize("kind", [HTTPServer, ThreadingHTTPServer])
@pytest.mark.parametrize(("handler", "doubtful"), [(Cancels, True), (Counts, False)])
def test_a_handler_that_cancels_calls_is_doubt(
    alone: Callable[..., Agent], stuck: Stuck, kind: Any, handler: Any, doubtful: bool
) -> None:
    with serving(kind(("127.0.0.1", 0), handler)):
        seen = look_at_caller(alone, stuck, calls_and_keeps_it)
    assert not seen.ways_out
    assert ("do_GET" in seen.doubt) is doubtful, seen.doubt


@pytest.mark.parametrize(("handler", "doubtful"), [(CancelsOfServer, True), (Counts, False)])
def test_a_handler_reaches_its_server(alone: Callable[..., Agent], stuck: Stuck, handler: Any, doubtful: bool) -> None:
    calls: dict[int, Any] = {}

    def keeps(get: Any) -> None:
        call = calls[0] = get.future(b"")
        call.result()

    with serving(Registry(calls, handler)):
        seen = look_at_caller(alone, stuck, keeps)
    assert ("do_POST" in seen.doubt) is doubtful, seen.doubt


@pytest.mark.parametrize("doubtful", [True, False])
def test_a_view_of_flask_that_cancels_calls_is_doubt(alone: Callable[..., Agent], stuck: Stuck, doubtful: bool) -> None:
    flask = pytest.importorskip("flask", reason="not among the libraries of every runtime")
    werkzeug = importlib.import_module("werkzeug.serving")
    app = flask.Flask("admin")

    @app.get("/")  # type: ignore[untyped-decorator]
    def view() -> str:
        return str(len(_CALLS))

    @app.post("/")  # type: ignore[untyped-decorator]
    def end() -> str:
        give_up()
        return ""

    if not doubtful:
        del app.view_functions["end"]
    with serving(werkzeug.make_server("127.0.0.1", 0, app)):
        seen = look_at_caller(alone, stuck, calls_and_keeps_it)
    assert bool(seen.doubt) is doubtful, seen.doubt


async def gives_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    give_up()
    writer.close()


async def counts(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(str(len(_CALLS)).encode())


class GivesUp(asyncio.Protocol):
    def data_received(self, _: bytes) -> None:
        give_up()


class Receives(asyncio.Protocol):
    def data_received(self, data: bytes) -> None:
        _CALLS.setdefault(len(data), None)


@contextmanager
def loop_with(begin: Callable[[asyncio.AbstractEventLoop], Any]) -> Iterator[None]:
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(begin(loop))
    thread = threading.Thread(target=loop.run_forever, name="loop")
    thread.start()
    yield
    loop.call_soon_threadsafe(server.close)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.mark.parametrize(("function", "doubtful"), [(gives_up, True), (counts, False)])
def test_what_a_server_of_streams_calls_is_doubt(
    alone: Callable[..., Agent], stuck: Stuck, function: Any, doubtful: bool
) -> None:
    with loop_with(lambda _: asyncio.start_server(function, "127.0.0.1", 0)):
        seen = look_at_caller(alone, stuck, calls_and_keeps_it)
    assert not seen.ways_out
    assert bool(seen.doubt) is doubtful, seen.doubt


@pytest.mark.parametrize(("protocol", "doubtful"), [(GivesUp, True), (Receives, False)])
def test_a_protocol_of_connections_to_come_is_doubt(
    alone: Callable[..., Agent], stuck: Stuck, protocol: Any, doubtful: bool
) -> None:
    with loop_with(lambda loop: loop.create_server(protocol, "127.0.0.1", 0)):
        seen = look_at_caller(alone, stuck, calls_and_keeps_it)
    assert bool(seen.doubt) is doubtful, seen.doubt


class _Protocol(asyncio.Protocol):
    def __init__(self, calls: list[Any]) -> None:
        self.calls = calls


class _CancelsItsCalls(_Protocol):
    def connection_lost(self, _: Exception | None) -> None:
        for call in self.calls:
            call.cancel()


class _CountsItsCalls(_Protocol):
    def data_received(self, _: bytes) -> None:
        self.calls.append(len(self.calls))


@pytest.mark.parametrize("doubtful", [True, False])
def test_so_is_one_that_a_function_makes(alone: Callable[..., Agent], stuck: Stuck, doubtful: bool) -> None:
    calls: list[Any] = []
    makes = {True: lambda: _CancelsItsCalls(calls), False: lambda: _CountsItsCalls(calls)}[doubtful]

    def caller(get: Any) -> None:
        calls.append(get.future(b""))
        calls[0].result()

    with loop_with(lambda loop: loop.create_server(makes, "127.0.0.1", 0)):
        seen = look_at_caller(alone, stuck, caller)
    assert bool(seen.doubt) is doubtful, seen.doubt
