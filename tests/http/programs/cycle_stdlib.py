"""A service of the standard library alone that asks another with a lock in hand: `cycle_stdlib PORT` serves it."""

from __future__ import annotations

import sys
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

_lock = threading.Lock()


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        target = urlsplit(self.path)
        text = _answer(target.path, dict(parse_qsl(target.query)))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


def _answer(path: str, asked: dict[str, str]) -> bytes:
    if path == "/hold":
        with _lock:
            return _ask(asked)
    if path == "/pass":
        return _ask(asked)
    if path == "/take":
        with _lock:
            return b"taken"
    return b"?"


def _ask(asked: dict[str, str]) -> bytes:
    limit = {"timeout": float(asked["seconds"])} if "seconds" in asked else {}
    with urllib.request.urlopen(asked["next"], **limit) as reply:
        return bytes(reply.read())


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), _Handler).serve_forever()
