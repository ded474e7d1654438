"""WSGI servers record the requests of an application without a framework; those of any other are recorded once."""

from __future__ import annotations

import importlib
import io
import socketserver
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import flask
import pytest
from cheroot import wsgi as cheroot
from werkzeug import serving

import stilltrue
from stilltrue.agent import Agent

pytestmark = pytest.mark.slow

waitress: Any = importlib.import_module("waitress")
SECONDS_MAX = 60.0
PARTS = [b"one ", b"two ", b"three"]
Serving = Callable[[Any], Any]


class _Threads(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Silent(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


@contextmanager
def _in_thread(run: Callable[[], Any], stop: Callable[[], Any], port: int) -> Iterator[str]:
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{port}"
    stop()
    thread.join(SECONDS_MAX)
    assert not thread.is_alive()


@contextmanager
def _wsgiref(app: Any) -> Iterator[str]:
    server = make_server("127.0.0.1", 0, app, server_class=_Threads, handler_class=_Silent)
    with _in_thread(server.serve_forever, server.shutdown, server.server_port) as url:
        yield url
    server.server_close()


@contextmanager
def _werkzeug(app: Any) -> Iterator[str]:
    server = serving.make_server("127.0.0.1", 0, app, threaded=True)
    with _in_thread(server.serve_forever, server.shutdown, server.server_port) as url:
        yield url
    server.server_close()


@contextmanager
def _waitress(app: Any) -> Iterator[str]:
    sockets: dict[int, Any] = {}
    server: Any = waitress.create_server(app, host="127.0.0.1", port=0, map=sockets)

    def stop() -> None:
        server.task_dispatcher.shutdown()
        stopped.set()
        server.pull_trigger()

    stopped = threading.Event()

    def run() -> None:
        while not stopped.is_set():
            server.asyncore.loop(timeout=0.05, map=sockets, use_poll=True, count=1)

    with _in_thread(run, stop, server.effective_port) as url:
        yield url
    server.close()


@contextmanager
def _cheroot(app: Any) -> Iterator[str]:
    server: Any = cheroot.Server(("127.0.0.1", 0), app)
    server.prepare()
    with _in_thread(server.serve, server.stop, server.bind_addr[1]) as url:
        yield url


SERVERS = pytest.mark.parametrize("serving", [_wsgiref, _werkzeug, _waitress, _cheroot])


@pytest.fixture
def attached() -> Iterator[Callable[[], Agent]]:
    yield lambda: stilltrue.instrument(service="here", instance="here", detector="127.0.0.1:1")
    stilltrue.uninstrument()


class Site:
    """An application without a framework; it notes the served parties that the agent has recorded at each request."""

    def __init__(self) -> None:
        self.parties: list[list[str]] = []
        self.agent: Agent | None = None

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        assert not [name for name in environ if name.upper().startswith("HTTP_STILLTRUE")]
        live = None if self.agent is None else self.agent.live
        self.parties.append([] if live is None else [served.party for served in live.recorder.calls_served.values()])
        if environ["PATH_INFO"] == "/raises":
            raise ValueError("on purpose")
        start_response("200 OK", [("Content-Type", "text/plain")])
        if environ["PATH_INFO"] == "/parts":
            return iter(PARTS)
        if environ["PATH_INFO"] == "/file" and "wsgi.file_wrapper" in environ:
            return environ["wsgi.file_wrapper"](io.BytesIO(b"a file"))
        return [b"said"]


def ask(url: str) -> tuple[int, bytes, list[str]]:
    """The status, the body, and the names of the headers except those with times."""
    try:
        with urllib.request.urlopen(url, timeout=SECONDS_MAX) as reply:
            return reply.status, reply.read(), sorted(name for name in reply.headers if name not in ("Date", "Server"))
    except urllib.error.HTTPError as error:
        with error:
            return error.code, b"", sorted(name for name in error.headers if name not in ("Date", "Server"))


@SERVERS
def test_a_request_is_recorded_while_it_is_served_and_runs_unchanged(serving: Serving, attached: Callable[[], Agent]) -> None:
    site = Site()
    paths = ("/one/7", "/parts", "/file", "/raises")
    names = ("one.{}", "parts", "file", "raises")
    with serving(site) as url:
        plain = [ask(f"{url}{path}") for path in paths]
        site.agent = attached()
        assert [ask(f"{url}{path}") for path in paths] == plain
    assert site.parties[len(paths) :] == [[f"here/GET:{name}#{number}"] for number, name in enumerate(names, 1)]
    assert not site.agent.live.recorder.calls_served
    assert site.agent.live.faults == 0


@SERVERS
def test_after_its_end_nothing_is_recorded_and_another_agent_does_so_once(
    serving: Serving, attached: Callable[[], Agent]
) -> None:
    site = Site()
    with serving(site) as url:
        first = site.agent = attached()
        ask(url)
        stilltrue.uninstrument()
        second = site.agent = attached()
        ask(url)
    assert site.parties == [["here/GET#1"], ["here/GET#1"]]
    assert [one.sight.counts()["calls"] for one in (first, second)] == [2, 2]  # at each end


@SERVERS
@pytest.mark.parametrize("wrapped", [False, True], ids=["a framework", "wrapped by hand"])
def test_a_request_recorded_at_two_levels_is_recorded_once(
    serving: Serving, attached: Callable[[], Agent], wrapped: bool
) -> None:
    agent = attached()
    application: Any = flask.Flask("here")
    application.add_url_rule("/", view_func=lambda: "flask")
    with serving(agent.wsgi(Site()) if wrapped else application) as url:
        assert ask(url)[:2] == (200, b"said" if wrapped else b"flask")
    assert agent.sight.counts()["calls"] == 2  # at each end
