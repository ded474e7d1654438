"""A TCP proxy on loopback whose way to the server can be made slow: what a case of the truth suite imports as ``proxy``."""

from __future__ import annotations

import socket
import threading
import time
from collections import deque

CHUNK_BYTES = 65_536


class Proxy:
    """Listens on ``port`` and joins each connection to ``target``; requests arrive ``delay`` seconds late."""

    def __init__(self, target: int) -> None:
        """``target``: the server's port on loopback."""
        self.delay = 0.0
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._start(self._accept)

    def _accept(self) -> None:
        while True:
            near, _ = self._listener.accept()
            far = socket.create_connection(("127.0.0.1", self._target))
            self._start(self._late, near, far)
            self._start(self._at_once, far, near)

    def _late(self, source: socket.socket, target: socket.socket) -> None:
        """Pass on what comes, each piece ``delay`` seconds after it came, in order."""
        pieces: deque[tuple[float, bytes]] = deque()
        arrived = threading.Condition()

        def write() -> None:
            while True:
                with arrived:
                    arrived.wait_for(lambda: pieces)
                    due, data = pieces.popleft()
                time.sleep(max(0.0, due - time.monotonic()))
                if not data:
                    target.close()
                    return
                target.sendall(data)

        self._start(write)
        while True:
            data = _read(source)
            with arrived:
                pieces.append((time.monotonic() + self.delay, data))
                arrived.notify()
            if not data:
                return

    def _at_once(self, source: socket.socket, target: socket.socket) -> None:
        while data := _read(source):
            target.sendall(data)
        target.close()

    @staticmethod
    def _start(work: object, *args: object) -> None:
        threading.Thread(target=work, args=args, daemon=True).start()  # type: ignore[arg-type]


def _read(source: socket.socket) -> bytes:
    try:
        return source.recv(CHUNK_BYTES)
    except OSError:
        return b""
