"""Servers and frameworks attached without changing their code: which processes join, which requests have a deadline."""

from __future__ import annotations

import asyncio
import functools
import io
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import django
import pytest
import uvicorn
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpResponse
from django.urls import path
from starlette.applications import Starlette

import stilltrue
from stilltrue.agent import Agent
from stilltrue.http.incoming_request import seconds_max

pytestmark = pytest.mark.slow

PROGRAMS = Path(__file__).parent / "programs"
SECONDS_MAX = 60.0
GUNICORN = ("gunicorn", "-b", "127.0.0.1:{port}", "--log-level", "error", "--chdir", str(PROGRAMS))
FLASK = "site_of_wsgi:make_flask()"
UVICORNS = "uvicorn.workers.UvicornWorker"


@contextmanager
def running(*command: str) -> Iterator[str]:
    """Run a server under `stilltrue run`; returns its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments = [one.format(port=port) for one in command]
    process = subprocess.Popen(
        [sys.executable, "-m", "stilltrue", "run", "--detector", "127.0.0.1:1", "--", sys.executable, "-m", *arguments],
        env={**os.environ, "PYTHONPATH": str(PROGRAMS)},
    )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def get(url: str) -> dict[str, Any]:
    end = time.monotonic() + SECONDS_MAX
    while True:
        with suppress(OSError), urllib.request.urlopen(url, timeout=SECONDS_MAX) as reply:
            found: dict[str, Any] = json.load(reply)
            return found
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.longer
@pytest.mark.parametrize(
    ("command", "seconds"),
    [
        pytest.param((*GUNICORN, FLASK), 30, id="gunicorn"),
        pytest.param((*GUNICORN, "site_of_wsgi:bare"), 30, id="gunicorn, without a framework"),
        pytest.param((*GUNICORN, "-k", "asgi", "asgi_site:bare"), None, id="gunicorn's ASGI worker, without a framework"),
        pytest.param(
            (*GUNICORN, "-k", "asgi", "--max-requests", "9", "asgi_site:bare"), 30, id="which stops after some requests"
        ),
        pytest.param((*GUNICORN, "--timeout", "0", FLASK), None, id="gunicorn without a timeout"),
        pytest.param((*GUNICORN, "--worker-class", "gthread", "--threads", "2", FLASK), None, id="threads of gunicorn"),
        pytest.param((*GUNICORN, "--worker-class", UVICORNS, "asgi_site:app"), None, id="uvicorn's worker of gunicorn"),
        pytest.param(
            (*GUNICORN, "--worker-class", UVICORNS, "--max-requests", "9", "asgi_site:app"), 30, id="which stops after some"
        ),
        pytest.param(("uvicorn", "--port", "{port}", "--log-level", "error", "asgi_site:app"), None, id="uvicorn"),
    ],
)
def test_a_server_joins_with_its_first_request_and_reports_its_timeouts(
    command: tuple[str, ...], seconds: float | None
) -> None:
    with running(*command) as url:
        told = get(f"{url}/one/7")
    assert told["joined"]
    assert told["method"] == "GET /one/{}"
    assert told["service"].startswith(("site_of_wsgi", "asgi_site"))
    assert told["left"] is None if seconds is None else 0 < told["left"] <= seconds


# -- Django, in this process -------------------------------------------------------------------------------------------

_served: list[str] = []


def _view(_: Any) -> HttpResponse:
    (served,) = _AGENT[0].live.recorder.calls_served.values()
    _served.append(served.party)
    return HttpResponse("one")


_AGENT: list[Agent] = []
urlpatterns = [path("one", _view)]


@pytest.fixture
def agent() -> Iterator[Agent]:
    if not settings.configured:
        settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="x")
        django.setup()
    _served.clear()
    agent = stilltrue.instrument(service="here", instance="here", detector="127.0.0.1:1")
    _AGENT[:] = [agent]
    yield agent
    stilltrue.uninstrument()


def _environ() -> dict[str, Any]:
    return {
        "REQUEST_METHOD": "GET",
        "PATH_INFO": "/one",
        "SERVER_NAME": "here",
        "SERVER_PORT": "80",
        "wsgi.input": io.BytesIO(),
        "wsgi.url_scheme": "http",
        "wsgi.multithread": True,
    }


def test_django_by_wsgi(agent: Agent) -> None:
    started: list[Any] = []
    body = WSGIHandler()(_environ(), lambda *given: started.append(given))
    assert len(agent.live.recorder.calls_served) == 1, "until the body has been handed over"
    assert b"".join(body) == b"one"
    body.close()
    assert _served == ["here/GET:one#1"]
    assert not agent.live.recorder.calls_served
    assert started[0][0] == "200 OK"


def test_django_by_asgi(agent: Agent) -> None:
    sent: list[Any] = []

    async def run() -> None:
        scope: dict[str, Any] = {"type": "http", "method": "GET", "path": "/one", "headers": [], "query_string": b""}
        asked: asyncio.Queue[Any] = asyncio.Queue()
        asked.put_nowait({"type": "http.request", "body": b"", "more_body": False})

        async def send(message: Any) -> None:
            sent.append(message)

        await ASGIHandler()(scope, asked.get, send)

    asyncio.run(run())
    assert _served == ["here/GET:one#1"]
    assert not agent.live.recorder.calls_served
    assert [one["type"] for one in sent] == ["http.response.start", "http.response.body"]


# -- by hand -----------------------------------------------------------------------------------------------------------


def test_explicit_middleware_passes_for_the_application(alone: Callable[[Any], Agent]) -> None:
    class Site:
        name = "site"

        def __call__(self, environ: Any, start_response: Any) -> list[bytes]:
            start_response("200 OK", [])
            return [b"one"]

    agent = alone(None)
    app = agent.wsgi(Site())
    assert app.name == "site"
    assert app(_environ(), lambda *_: None) == [b"one"]
    assert not agent.live.recorder.calls_served


@pytest.fixture
def alone() -> Iterator[Callable[[Any], Agent]]:
    agents: list[Agent] = []

    def make(_: Any) -> Agent:
        agents.append(Agent(service="here", instance="here", detector="127.0.0.1:1"))
        return agents[-1]

    yield make
    for agent in agents:
        agent.close()


@pytest.mark.parametrize("arguments", [(), ({},), ({}, None)])
def test_a_wrong_call_of_an_application_fails_as_without_the_agent(agent: Agent, arguments: tuple[Any, ...]) -> None:
    for kind in (Starlette, ASGIHandler):
        with pytest.raises(TypeError):  # uvicorn takes a callable without parameters for a factory
            kind()(*arguments)


def test_uvicorn_detects_the_applications_interface(agent: Agent) -> None:
    config = uvicorn.Config(Starlette(), log_level="critical")
    config.load()
    assert config.interface == "asgi3"


@pytest.mark.parametrize("seconds", [None, 5])
def test_daphne_answers_for_an_application_after_its_timeout(seconds: int | None) -> None:
    daphne = pytest.importorskip("daphne.server")
    server = daphne.Server(None, endpoints=["tcp:0:interface=127.0.0.1"], http_timeout=seconds)
    assert seconds_max(functools.partial(server.handle_reply, object())) == seconds
