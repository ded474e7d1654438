"""Circles of HTTP requests in real processes are called with exactly their core; near misses are not."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from detector.demo.harness import Harness

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.longer]

SHOP = Path(__file__).parent / "programs" / "shop.py"
SECONDS_MAX = 60.0
KINDS = [("flask", "requests"), ("flask", "httpx"), ("fastapi", "httpx"), ("fastapi", "aiohttp")]
CORE = {"a/GET:hold", "b/GET:pass", "a/GET:take"}
Start = Callable[[str, str, str], "Shop"]


class Shop:
    """One process of the program."""

    def __init__(self, name: str, server: str, client: str, detector: str) -> None:
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, str(SHOP), name, server, client],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "STILLTRUE_DETECTOR": detector},
        )
        assert self.process.stdout is not None
        where = json.loads(self.process.stdout.readline())
        self.url: str = where["http"]
        self.grpc: str = where["grpc"]

    def stop(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    with Harness(tmp_path_factory.mktemp("detector")) as harness:
        harness.start_detector("--period-seconds", "0.5", "--lease-seconds", "2", "--forget-seconds", "4")
        yield harness


@pytest.fixture
def start(harness: Harness) -> Iterator[Start]:
    shops: list[Shop] = []

    def begin(name: str, server: str, client: str) -> Shop:
        shops.append(Shop(f"{name}-{os.urandom(3).hex()}", server, client, harness.detector))
        return shops[-1]

    yield begin
    for shop in shops:
        shop.stop()


def get(url: str) -> threading.Thread:
    """Ask for ``url`` in a thread of its own, from outside: this process has no agent."""

    def run() -> None:
        with suppress(OSError, urllib.error.HTTPError):
            urllib.request.urlopen(url, timeout=SECONDS_MAX * 2).read()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def kinds(parties: list[str]) -> set[str]:
    """``a3-c0ffee/GET:hold#7`` is an ``a/GET:hold``."""
    return {re.sub(r"^(\w)\S*?/", r"\1/", re.sub(r"#\d+.*$", "", party)) for party in parties}


def ask(harness: Harness, predicate: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(harness.run("ask", predicate, "--json").stdout)
    return found


def until(what: str, so: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS_MAX
    while not so():
        assert time.monotonic() < end, what
        time.sleep(0.2)


def until_true(harness: Harness, predicate: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = []

    def holds() -> bool:
        found.append(ask(harness, predicate))
        return found[-1]["holds"] is True

    until(f"{predicate} to hold", holds)
    return found[-1]


def until_waiting(harness: Harness, party: str) -> None:
    """Until a party whose name begins so waits for a lock: whatever leads there has come about."""

    def waits() -> bool:
        snapshot = ask(harness, "deadlock")["snapshot"]["id"]
        document = json.loads(harness.run("show", str(snapshot), "--format", "json").stdout)
        return any(wait["waiter"].startswith(party) for wait in document["waits"])

    until(f"{party} to wait", waits)


def chain(*urls: str, limit: str = "") -> str:
    """Each URL asks the next one; the one before the last does so for a limited time."""
    whole = urls[-1]
    for at, url in enumerate(reversed(urls[:-1])):
        whole = f"{url}?next={quote(whole, safe='')}{limit if at == 0 else ''}"
    return whole


@pytest.mark.parametrize(("server", "client"), KINDS)
def test_a_circle_of_http_alone(harness: Harness, start: Start, server: str, client: str) -> None:
    a, b = start("a", server, client), start("b", server, client)
    get(chain(f"{a.url}/hold", f"{b.url}/pass", f"{a.url}/take"))
    verdict = until_true(harness, "deadlock")
    assert kinds(verdict["core"]) == CORE
    assert verdict["behind"] == []
    at = {one["party"]: one["stack"][0] for one in verdict["evidence"]}
    assert len(at) == len(CORE)
    assert all(re.search(rf"{re.escape(str(SHOP))}:\d+ in ", stack) for stack in at.values()), at


def test_a_circle_through_threads_of_a_pool_and_a_middleware(harness: Harness, start: Start) -> None:
    a, b = start("a", "threaded", "requests"), start("b", "threaded", "requests")
    get(chain(f"{a.url}/hold", f"{b.url}/pass", f"{a.url}/take"))
    verdict = until_true(harness, "deadlock")
    held = {"a/thread:AnyIO worker thread", "b/GET:pass", "b/thread:AnyIO worker thread", "a/GET:take"}
    assert held <= {re.sub(r"-\d+$", "", party) for party in kinds(verdict["core"])}


def test_a_circle_through_http_and_grpc(harness: Harness, start: Start) -> None:
    a, b = start("a", "flask", "requests"), start("b", "flask", "requests")
    get(f"{a.url}/call?target={b.grpc}&next={quote(f'{a.url}/take', safe='')}")
    verdict = until_true(harness, "deadlock")
    assert kinds(verdict["core"]) == {"a/GET:call", "b/Ask", "a/GET:take"}


@pytest.mark.parametrize(("server", "client"), KINDS)
def test_a_timeout_makes_it_a_gridlock(harness: Harness, start: Start, server: str, client: str) -> None:
    a, b = start("a", server, client), start("b", server, client)
    get(chain(f"{a.url}/hold", f"{b.url}/pass", f"{a.url}/take", limit=f"&seconds={SECONDS_MAX * 2}"))
    verdict = until_true(harness, "gridlock")
    assert kinds(verdict["remainder"]) == CORE
    assert verdict["until"] is not None
    assert ask(harness, "deadlock")["holds"] is not True


@pytest.mark.not_in_ci
@pytest.mark.parametrize(("server", "client"), [("flask", "requests"), ("fastapi", "httpx")])
def test_something_between_that_may_give_up_is_no_deadlock(harness: Harness, start: Start, server: str, client: str) -> None:
    a, b = start("a", server, client), start("b", server, client)
    with Relay(b.url) as relay:
        get(chain(f"{a.url}/hold", f"{relay.url}/pass", f"{a.url}/take"))
        until_waiting(harness, f"{a.name}/GET:take#")
        for _ in range(4):
            assert ask(harness, "deadlock")["holds"] is not True  # undetermined while those of the last test are missed
            assert ask(harness, "gridlock")["holds"] is not True


@pytest.mark.not_in_ci
@pytest.mark.parametrize(("server", "client"), [("flask", "requests"), ("fastapi", "aiohttp")])
def test_another_replica_has_a_lock_of_its_own(harness: Harness, start: Start, server: str, client: str) -> None:
    a, b, c = start("a", server, client), start("b", server, client), start("c", server, client)
    asked = get(chain(f"{a.url}/hold", f"{b.url}/pass", f"{c.url}/take"))
    asked.join(SECONDS_MAX)
    assert not asked.is_alive()
    assert ask(harness, "deadlock")["holds"] is not True


class Relay:
    """Passes on whatever comes, byte by byte, as a proxy or a sidecar that is no member does."""

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
