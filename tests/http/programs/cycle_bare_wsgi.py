"""A WSGI application of no framework that asks another with a lock in hand: `cycle_bare_wsgi PORT SERVER` serves it itself."""

from __future__ import annotations

import importlib
import sys
import threading
from socketserver import ThreadingMixIn
from typing import Any
from urllib.parse import parse_qsl
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import requests

_lock = threading.Lock()


def app(environ: Any, start_response: Any) -> list[bytes]:
    text = _answer(environ["PATH_INFO"], dict(parse_qsl(environ["QUERY_STRING"])))
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [text.encode()]


def _answer(path: str, asked: dict[str, str]) -> str:
    if path == "/hold":
        with _lock:
            return _ask(asked)
    if path == "/pass":
        return _ask(asked)
    if path == "/take":
        with _lock:
            return "taken"
    return "?"


def _ask(asked: dict[str, str]) -> str:
    seconds = asked.get("seconds")
    return requests.get(asked["next"], timeout=None if seconds is None else float(seconds)).text


class _Threads(ThreadingMixIn, WSGIServer):
    """The standard library's server, with a thread for each request."""

    daemon_threads = True


class _Silent(WSGIRequestHandler):
    """Writes no line for a request."""

    def log_message(self, format: str, *args: Any) -> None:
        """As ``BaseHTTPRequestHandler.log_message``."""


def _serve(port: int, server: str) -> None:
    if server == "wsgiref":
        make_server("127.0.0.1", port, app, server_class=_Threads, handler_class=_Silent).serve_forever()
    elif server == "cheroot":
        importlib.import_module("cheroot.wsgi").Server(("127.0.0.1", port), app).start()
    else:
        importlib.import_module("werkzeug.serving").run_simple("127.0.0.1", port, app, threaded=True)


if __name__ == "__main__":
    _serve(int(sys.argv[1]), sys.argv[2])
