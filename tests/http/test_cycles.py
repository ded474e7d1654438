"""Cycles of HTTP requests in real processes are reported with exactly their core; near misses are not."""

from __future__ import annotations

import re
import socket
import threading
from contextlib import suppress
from urllib.parse import quote, urlsplit

import pytest

from detector.demo.harness import Harness
from tests.http.cycles import PROGRAMS, SECONDS_MAX, Start, ask, chain, get, kinds, until_true, until_waiting

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.longer]

KINDS = [
    ("flask", "requests"),
    pytest.param("flask", "httpx", marks=pytest.mark.not_in_ci),
    ("fastapi", "httpx"),
    pytest.param("fastapi-asyncio", "aiohttp", marks=pytest.mark.not_in_ci),
    pytest.param("fastapi", "aiohttp", marks=pytest.mark.not_in_ci),
    pytest.param("fastapi-asyncio", "httpx", marks=pytest.mark.not_in_ci),
]
"""FastAPI is served on uvloop's event loop, but where asyncio's is named."""
CORE = {"a/GET:hold", "b/GET:pass", "a/GET:take"}


@pytest.mark.parametrize(("server", "client"), KINDS)
def test_a_cycle_of_http_alone(harness: Harness, start: Start, server: str, client: str) -> None:
    a, b = start("shop.py", "a", server, client), start("shop.py", "b", server, client)
    get(chain(f"{a.url}/hold", f"{b.url}/pass", f"{a.url}/take"))
    verdict = until_true(harness, "deadlock")
    assert kinds(verdict["core"]) == CORE
    assert verdict["behind"] == []
    at = {one["party"]: one["stack"][0] for one in verdict["evidence"]}
    assert len(at) == len(CORE)
    assert all(re.search(rf"{re.escape(str(PROGRAMS / 'shop.py'))}:\d+ in ", stack) for stack in at.values()), at


@pytest.mark.not_in_ci
def test_a_cycle_through_pool_threads_and_a_middleware(harness: Harness, start: Start) -> None:
    a, b = start("shop.py", "a", "threaded", "requests"), start("shop.py", "b", "threaded", "requests")
    get(chain(f"{a.url}/hold", f"{b.url}/pass", f"{a.url}/take"))
    verdict = until_true(harness, "deadlock")
    held = {"a/thread:AnyIO worker thread", "b/GET:pass", "b/thread:AnyIO worker thread", "a/GET:take"}
    assert held <= {re.sub(r"-\d+$", "", party) for party in kinds(verdict["core"])}


def test_a_cycle_through_http_and_grpc(harness: Harness, start: Start) -> None:
    a, b = start("shop.py", "a", "flask", "requests"), start("shop.py", "b", "flask", "requests")
    get(f"{a.url}/call?target={b.grpc}&next={quote(f'{a.url}/take', safe='')}")
    verdict = until_true(harness, "deadlock")
    assert kinds(verdict["core"]) == {"a/GET:call", "b/Ask", "a/GET:take"}


@pytest.mark.parametrize(("server", "client"), KINDS)
def test_a_timeout_makes_it_a_gridlock(harness: Harness, start: Start, server: str, client: str) -> None:
    a, b = start("shop.py", "a", server, client), start("shop.py", "b", server, client)
    get(chain(f"{a.url}/hold", f"{b.url}/pass", f"{a.url}/take", limit=f"&seconds={SECONDS_MAX * 2}"))
    verdict = until_true(harness, "gridlock")
    assert kinds(verdict["remainder"]) == CORE
    assert verdict["until"] is not None
    assert ask(harness, "deadlock")["holds"] is not True


@pytest.mark.not_in_ci
@pytest.mark.parametrize(("server", "client"), [("flask", "requests"), ("fastapi", "httpx"), ("fastapi-asyncio", "httpx")])
def test_a_proxy_that_may_time_out_prevents_a_deadlock(harness: Harness, start: Start, server: str, client: str) -> None:
    a, b = start("shop.py", "a", server, client), start("shop.py", "b", server, client)
    with Relay(b.url) as relay:
        get(chain(f"{a.url}/hold", f"{relay.url}/pass", f"{a.url}/take"))
        until_waiting(harness, f"{a.name}/GET:take#")
        for _ in range(4):
            assert ask(harness, "deadlock")["holds"] is not True  # undetermined while the last test's processes are missing
            assert ask(harness, "gridlock")["holds"] is not True


@pytest.mark.not_in_ci
@pytest.mark.parametrize(("server", "client"), [("flask", "requests"), ("fastapi", "aiohttp")])
def test_another_replica_has_its_own_lock(harness: Harness, start: Start, server: str, client: str) -> None:
    a, b, c = (
        start("shop.py", "a", server, client),
        start("shop.py", "b", server, client),
        start("shop.py", "c", server, client),
    )
    asked = get(chain(f"{a.url}/hold", f"{b.url}/pass", f"{c.url}/take"))
    asked.join(SECONDS_MAX)
    assert not asked.is_alive()
    assert ask(harness, "deadlock")["holds"] is not True


class Relay:
    """Forwards all bytes, like a proxy or sidecar that is not a member."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname, parts.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Relay:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._target)
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=_pass_on, args=ends, daemon=True).start()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
    for one in (source, target):
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
