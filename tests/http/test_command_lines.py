"""A cycle between applications run by their servers' own commands, attached by `stilltrue run` alone."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress

import pytest

from detector.demo.harness import Harness
from tests.http.cycles import PROGRAMS, SECONDS_MAX, ask, chain, get, kinds, until

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.longer]

_UVICORN = ("uvicorn", "--port", "{port}", "--log-level", "error")
_GUNICORN = ("gunicorn", "-b", "127.0.0.1:{port}", "--log-level", "error", "--chdir", str(PROGRAMS))
_HYPERCORN = ("hypercorn", "-b", "127.0.0.1:{port}", "--log-level", "error")
_THREADS = ("-k", "gthread", "--threads", "4")
_BACKGROUND = (*_UVICORN, "cycle_background:app")
_REST = pytest.mark.not_in_ci
COMMANDS = [
    pytest.param((*_UVICORN, "cycle_asgi:app"), id="uvicorn"),
    pytest.param((*_UVICORN, "--workers", "2", "cycle_asgi:app"), id="workers of uvicorn", marks=_REST),
    pytest.param(
        (*_GUNICORN, "-k", "uvicorn.workers.UvicornWorker", "cycle_asgi:app"), id="uvicorn's worker of gunicorn", marks=_REST
    ),
    pytest.param((*_UVICORN, "cycle_aiohttp:app"), id="uvicorn, asked by aiohttp", marks=_REST),
    pytest.param(("cycle_aiohttp", "{port}"), id="uvicorn, run by the application's own module", marks=_REST),
    pytest.param((*_HYPERCORN, "cycle_asgi:app"), id="hypercorn", marks=_REST),
    pytest.param((*_HYPERCORN, "--workers", "0", "cycle_asgi:app"), id="hypercorn in one process", marks=_REST),
    pytest.param((*_UVICORN, "cycle_bare:app"), id="uvicorn, without a framework", marks=_REST),
    pytest.param((*_HYPERCORN, "cycle_bare:app"), id="hypercorn, without a framework", marks=_REST),
    pytest.param(("cycle_aiohttp_web", "{port}"), id="aiohttp's own server"),
    pytest.param((*_GUNICORN, *_THREADS, "cycle_wsgi:app"), id="threads of gunicorn"),
    pytest.param(("flask", "--app", "cycle_wsgi", "run", "--port", "{port}"), id="Flask's own server", marks=_REST),
    pytest.param(("waitress", "--listen=127.0.0.1:{port}", "cycle_wsgi:app"), id="waitress", marks=_REST),
    pytest.param((*_GUNICORN, *_THREADS, "cycle_bare_wsgi:app"), id="threads of gunicorn, without a framework", marks=_REST),
    pytest.param(
        ("waitress", "--listen=127.0.0.1:{port}", "cycle_bare_wsgi:app"), id="waitress, without a framework", marks=_REST
    ),
    pytest.param(("cycle_bare_wsgi", "{port}", "cheroot"), id="cheroot, without a framework", marks=_REST),
    pytest.param(("cycle_bare_wsgi", "{port}", "wsgiref"), id="wsgiref, without a framework"),
    pytest.param(("cycle_bare_wsgi", "{port}", "werkzeug"), id="werkzeug, without a framework", marks=_REST),
    pytest.param(("cycle_stdlib", "{port}"), id="the standard library's own, asked by urllib"),
    pytest.param(("cycle_django", "runserver", "127.0.0.1:{port}"), id="Django's runserver", marks=_REST),
]


class Services:
    """Services run by servers' own commands."""

    def __init__(self, detector: str) -> None:
        self.names: list[str] = []
        self._detector = detector
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, command: tuple[str, ...]) -> str:
        """Start a server as a service with this name prefix; returns its URL."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.names.append(f"{name}-{os.urandom(3).hex()}")
        arguments = [one.format(port=port) for one in command]
        run = ["run", "--service", self.names[-1], "--detector", self._detector, "--", sys.executable, "-m", *arguments]
        environment = {**os.environ, "PYTHONPATH": str(PROGRAMS)}
        self._processes.append(
            subprocess.Popen([sys.executable, "-m", "stilltrue", *run], env=environment, start_new_session=True)
        )
        url = f"http://127.0.0.1:{port}"
        until(f"{name} to serve", lambda: _is_up(url))
        return url

    def of_these(self, parties: list[str]) -> list[str]:
        """The parties that belong to these services."""
        return [party for party in parties if party.startswith(tuple(self.names))]

    def stop(self) -> None:
        """End the services and their workers, which a server killed while it waits for stuck requests would leave behind."""
        for one in self._processes:
            one.terminate()
        for one in self._processes:
            with suppress(subprocess.TimeoutExpired):
                one.wait(5)
            with suppress(ProcessLookupError):
                os.killpg(one.pid, signal.SIGKILL)
            one.wait()


@pytest.fixture
def services(harness: Harness) -> Iterator[Services]:
    services = Services(harness.detector)
    yield services
    services.stop()


def _is_up(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=SECONDS_MAX)
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


@pytest.mark.parametrize("command", COMMANDS)
def test_a_cycle_of_two_services_is_reported(harness: Harness, services: Services, command: tuple[str, ...]) -> None:
    a, b = services.start("a", command), services.start("b", command)
    asked = get(chain(f"{a}/hold", f"{b}/pass", f"{a}/take"))
    while True:  # with two workers, a request may go to the other worker, and they do not share the lock
        asked.join(3.0)
        if asked.is_alive():
            break
        asked = get(chain(f"{a}/hold", f"{b}/pass", f"{a}/take"))
    core: list[set[str]] = []

    def is_called() -> bool:
        core.append(kinds(services.of_these(ask(harness, "deadlock")["core"])))
        return bool(core[-1])

    until("the cycle to be called", is_called)
    assert core[-1] == {"a/GET:hold", "b/GET:pass", "a/GET:take"}


@pytest.mark.not_in_ci
@pytest.mark.parametrize("command", COMMANDS)
def test_a_timeout_prevents_a_report(harness: Harness, services: Services, command: tuple[str, ...]) -> None:
    a, b = services.start("a", command), services.start("b", command)
    asked = get(chain(f"{a}/hold", f"{b}/pass", f"{a}/take", limit="&seconds=8"))
    while asked.is_alive():
        verdict = ask(harness, "deadlock")
        assert not services.of_these(verdict["remainder"])
        asked.join(0.5)


@pytest.mark.not_in_ci
@pytest.mark.parametrize(
    "command",
    [
        pytest.param((*_HYPERCORN, "--max-requests", "100", "cycle_asgi:app"), id="hypercorn, after some requests"),
        pytest.param(("cycle_aiohttp_web", "{port}", "3600"), id="aiohttp's own, after an hour"),
    ],
)
def test_a_server_that_stops_by_itself_prevents_a_report(
    harness: Harness, services: Services, command: tuple[str, ...]
) -> None:
    a, b = services.start("a", command), services.start("b", command)
    get(chain(f"{a}/hold", f"{b}/pass", f"{a}/take"))
    until("the verdict to name them all", lambda: "/GET:take#" in json.dumps(ask(harness, "deadlock")))
    for _ in range(4):
        assert ask(harness, "deadlock")["holds"] is not True


@pytest.mark.parametrize(
    ("way", "core"),
    [
        pytest.param("", {"a/task:Task", "b/GET:pass", "a/GET:take"}, id="coroutine"),
        pytest.param(
            "-in-thread", {"a/task:Task", "a/thread:AnyIO worker thread", "b/GET:pass", "a/GET:take-in-thread"}, id="function"
        ),
    ],
)
@pytest.mark.not_in_ci
def test_a_cycle_through_a_background_task_after_the_reply(
    harness: Harness, services: Services, way: str, core: set[str]
) -> None:
    a, b = services.start("a", _BACKGROUND), services.start("b", _BACKGROUND)
    asked = get(chain(f"{a}/hold{way}", f"{b}/pass", f"{a}/take{way}"))
    asked.join(SECONDS_MAX)
    assert not asked.is_alive(), "the reply does not wait for the background task"
    found: list[set[str]] = []

    def is_called() -> bool:
        found.append({re.sub(r"-\d+$", "", one) for one in kinds(services.of_these(ask(harness, "deadlock")["core"]))})
        return bool(found[-1])

    until("the cycle to be called", is_called)
    assert found[-1] == core


@pytest.mark.not_in_ci
@pytest.mark.parametrize("way", ["", "-in-thread"], ids=["coroutine", "function"])
def test_a_background_task_with_a_timeout_prevents_a_report(harness: Harness, services: Services, way: str) -> None:
    a, b = services.start("a", _BACKGROUND), services.start("b", _BACKGROUND)
    get(chain(f"{a}/hold{way}", f"{b}/pass", f"{a}/take{way}", limit="&seconds=8")).join(SECONDS_MAX)
    free = get(f"{a}/take{way}")
    while free.is_alive():
        assert not services.of_these(ask(harness, "deadlock")["remainder"])
        free.join(0.5)
