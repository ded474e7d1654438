"""The cost of recording an HTTP request, both ends together, compared with OpenTelemetry in one interleaved run.

Processor time of this whole process for each request, so that other load on the machine matters little: `requests` against a
WSGI application in threads, `httpx` against an ASGI application under uvicorn. Run it: ``test_http_cost.py ROUNDS``.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import socket
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import HTTPServer
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import httpx
import pytest
import requests
import uvicorn
from flask import Flask
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

import stilltrue

REQUESTS_PER_ROUND = 60
STILLTRUE, PLAIN, OTHER = "stilltrue", "plain", "opentelemetry-api"
OTHERS = ("asgi", "httpx", "requests", "wsgi")
Taken = dict[str, list[float]]

flask_app = Flask("bench")
flask_app.add_url_rule("/one", "one", lambda: "one")


async def _one(_: Any) -> PlainTextResponse:
    return PlainTextResponse("one")


starlette_app = Starlette(routes=[Route("/one", _one)])


class Threaded(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class Quiet(WSGIRequestHandler):
    def log_message(self, *args: Any) -> None:
        pass


@contextmanager
def serving_wsgi(app: Any) -> Iterator[str]:
    server: HTTPServer = Threaded(("127.0.0.1", 0), Quiet)
    server.set_app(app)  # type: ignore[attr-defined]  # a WSGIServer
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/one"
    server.shutdown()
    thread.join()
    server.server_close()


@contextmanager
def serving_asgi(app: Any) -> Iterator[str]:
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/one"
    server.should_exit = True
    thread.join()
    listener.close()


def ask_by_requests(url: str) -> float:
    with requests.Session() as session:
        session.get(url)
        begun = time.process_time()
        for _ in range(REQUESTS_PER_ROUND):
            assert session.get(url).text == "one"
        return (time.process_time() - begun) / REQUESTS_PER_ROUND


def ask_by_httpx(url: str) -> float:
    async def run() -> float:
        async with httpx.AsyncClient() as client:
            await client.get(url)
            begun = time.process_time()
            for _ in range(REQUESTS_PER_ROUND):
                assert (await client.get(url)).text == "one"
            return (time.process_time() - begun) / REQUESTS_PER_ROUND

    return asyncio.run(run())


def with_stilltrue(serving: Any, app: Any, ask: Callable[[str], float]) -> float:
    stilltrue.instrument(service="bench", instance="bench", detector="127.0.0.1:1", backoff_seconds_max=3600.0)
    try:
        return plainly(serving, app, ask)
    finally:
        stilltrue.uninstrument()


def plainly(serving: Any, app: Any, ask: Callable[[str], float]) -> float:
    with serving(app) as url:
        return ask(url)


def with_other(serving: Any, app: Any, ask: Callable[[str], float]) -> float:
    asgi, httpx_, requests_, wsgi = (importlib.import_module(f"opentelemetry.instrumentation.{name}") for name in OTHERS)
    instrumentors = (requests_.RequestsInstrumentor(), httpx_.HTTPXClientInstrumentor())
    for one in instrumentors:
        one.instrument()
    try:
        return plainly(serving, (wsgi if serving is serving_wsgi else asgi).OpenTelemetryMiddleware(app), ask)
    finally:
        for one in instrumentors:
            one.uninstrument()


CONTENDERS = {PLAIN: plainly, STILLTRUE: with_stilltrue}
if all(importlib.util.find_spec(f"opentelemetry.instrumentation.{name}") for name in OTHERS):
    CONTENDERS[OTHER] = with_other
KINDS = {
    "requests, Flask in threads": (serving_wsgi, flask_app, ask_by_requests),
    "httpx (asynchronous), Starlette under uvicorn": (serving_asgi, starlette_app, ask_by_httpx),
}


def measure(kind: str, rounds: int) -> Taken:
    """Seconds of processor time a request, by contender; the first round warms everything up."""
    taken: Taken = {name: [] for name in CONTENDERS}
    for number in range(rounds + 1):
        names = list(CONTENDERS)
        for name in names if number % 2 else reversed(names):
            seconds = CONTENDERS[name](*KINDS[kind])
            if number:
                taken[name].append(seconds)
    return taken


def table(kind: str, taken: Taken) -> str:
    plain = statistics.median(taken[PLAIN])
    added = {name: statistics.median(each) - plain for name, each in taken.items() if name != PLAIN}
    lines = [f"{kind}: {plain * 1e6:.0f} us of processor time a request, both ends"]
    lines += [
        f"  {name:20} +{extra * 1e6:.0f} us, {extra / plain:.0%} of plain, {extra / added[STILLTRUE]:.2f} times stilltrue's"
        for name, extra in added.items()
    ]
    return "\n".join(lines)


@pytest.mark.not_in_ci
@pytest.mark.longer
@pytest.mark.parametrize("kind", KINDS)
def test_every_contender_works_and_is_in_the_table(kind: str) -> None:
    taken = measure(kind, 1)
    assert {PLAIN, STILLTRUE} <= set(taken)
    text = table(kind, taken)
    assert all(name in text for name in taken if name != PLAIN)


if __name__ == "__main__":
    ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    for KIND in KINDS:
        print(table(KIND, measure(KIND, ROUNDS)), flush=True)
