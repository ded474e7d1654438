"""The same application for WSGI (Flask, werkzeug's threads), ASGI (FastAPI, uvicorn), ``aiohttp.web`` and ``http.server``."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from socket import create_server
from typing import Any

import fastapi
import flask
import uvicorn
from aiohttp import web
from fastapi.responses import RedirectResponse, StreamingResponse
from werkzeug.serving import make_server

PARTS = [b"one ", b"two ", b"three"]
WAIT_SECONDS = 20.0


class Gate:
    """`/slow` waits for it."""

    def __init__(self) -> None:
        self.arrived = threading.Semaphore(0)
        self.open = threading.Event()


def flask_app(gate: Gate) -> flask.Flask:
    app = flask.Flask("here")

    @app.route("/echo", methods=["GET", "POST"])
    def echo() -> Any:
        return {"headers": sorted(flask.request.headers), "body": flask.request.get_data(as_text=True)}

    @app.get("/error")
    def error() -> Any:
        return "no", 500, {"X-Of": "the application"}

    @app.get("/missing")
    def missing() -> Any:
        flask.abort(404)

    @app.get("/raises")
    def raises() -> Any:
        raise ValueError("on purpose")

    @app.get("/moved")
    def moved() -> Any:
        return flask.redirect("/echo", 307)

    @app.get("/parts")
    def parts() -> Any:
        return flask.Response(iter(PARTS), content_type="text/plain")

    @app.get("/slow")
    def slow() -> Any:
        gate.arrived.release()
        gate.open.wait(WAIT_SECONDS)
        return "late"

    return app


def fastapi_app(gate: Gate) -> fastapi.FastAPI:
    app = fastapi.FastAPI()

    @app.api_route("/echo", methods=["GET", "POST"])
    async def echo(request: fastapi.Request) -> Any:
        return {"headers": sorted(request.headers.keys()), "body": (await request.body()).decode()}

    @app.get("/error")
    async def error() -> Any:
        return fastapi.Response("no", 500, {"X-Of": "the application"})

    @app.get("/missing")
    async def missing() -> Any:
        raise fastapi.HTTPException(404)

    @app.get("/raises")
    async def raises() -> Any:
        raise ValueError("on purpose")

    @app.get("/moved")
    async def moved() -> Any:
        return RedirectResponse("/echo", 307)

    @app.get("/parts")
    async def parts() -> Any:
        async def made() -> AsyncIterator[bytes]:
            for part in PARTS:
                yield part

        return StreamingResponse(made(), media_type="text/plain")

    @app.get("/slow")
    def slow() -> Any:  # in a pool thread
        gate.arrived.release()
        gate.open.wait(WAIT_SECONDS)
        return "late"

    return app


def aiohttp_app(gate: Gate) -> web.Application:
    async def echo(request: web.Request) -> web.Response:
        raw = sorted(name.decode() for name, _ in request.raw_headers)
        return web.json_response({"headers": sorted(request.headers), "raw": raw, "body": await request.text()})

    async def error(_: web.Request) -> web.Response:
        return web.Response(status=500, text="no", headers={"X-Of": "the application"})

    async def missing(_: web.Request) -> web.Response:
        raise web.HTTPNotFound

    async def raises(_: web.Request) -> web.Response:
        raise ValueError("on purpose")

    async def moved(_: web.Request) -> web.Response:
        raise web.HTTPTemporaryRedirect("/echo")

    async def parts(request: web.Request) -> web.StreamResponse:
        reply = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await reply.prepare(request)
        for part in PARTS:
            await reply.write(part)
        return reply

    async def slow(_: web.Request) -> web.Response:
        gate.arrived.release()
        await asyncio.to_thread(gate.open.wait, WAIT_SECONDS)
        return web.Response(text="late")

    app = web.Application()
    app.router.add_route("*", "/echo", echo)
    for handler in (error, missing, raises, moved, parts, slow):
        app.router.add_get(f"/{handler.__name__}", handler)
    return app


def http_handler(gate: Gate) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path == "/slow":
                gate.arrived.release()
                gate.open.wait(WAIT_SECONDS)
            if self.path == "/raises":
                raise ConnectionAbortedError("on purpose")
            length = int(self.headers.get("Content-Length", 0))
            seen = {"headers": sorted(self.headers.keys()), "body": self.rfile.read(length).decode()}
            status = {"/error": 500, "/missing": 404, "/moved": 307}.get(self.path, 200)
            body = b"".join(PARTS) if self.path == "/parts" else json.dumps(seen).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Location" if status == 307 else "X-Of", "/echo")
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler


@contextmanager
def _served_by(server: HTTPServer) -> Iterator[str]:
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@contextmanager
def http_server(gate: Gate) -> Iterator[str]:
    class Server(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            pass

    with _served_by(Server(("127.0.0.1", 0), http_handler(gate))) as url:
        yield url


@contextmanager
def wsgi(gate: Gate) -> Iterator[str]:
    with _served_by(make_server("127.0.0.1", 0, flask_app(gate), threaded=True)) as url:
        yield url


@contextmanager
def asgi(gate: Gate) -> Iterator[str]:
    listener = create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(fastapi_app(gate), log_level="critical", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = server.force_exit = True
    thread.join(WAIT_SECONDS)
    listener.close()


@contextmanager
def aiohttp_web(gate: Gate) -> Iterator[str]:
    listener = create_server(("127.0.0.1", 0))
    loop, stopped = asyncio.new_event_loop(), asyncio.Event()

    async def run() -> None:
        runner = web.AppRunner(aiohttp_app(gate), access_log=None)
        await runner.setup()
        await web.SockSite(runner, listener).start()
        await stopped.wait()
        await runner.cleanup()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    loop.call_soon_threadsafe(stopped.set)
    thread.join(WAIT_SECONDS)
    listener.close()
