"""Each client against each kind of server: the same with and without the agent, and recorded until it ends."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import httpx
import pytest
import requests

import stilltrue
from stilltrue.agent import Agent
from stilltrue.protocol.report import CallTarget
from tests.http import servers
from tests.http.clients import CLIENTS, ON_LOOP, Seen

pytestmark = pytest.mark.slow

SECONDS_MAX = 20.0
OUTCOMES: dict[str, tuple[str, dict[str, Any]]] = {
    "ok": ("/echo", {}),
    "a body": ("/echo", {"data": b"x" * 100}),
    "an error": ("/error", {}),
    "not found": ("/missing", {}),
    "an exception": ("/raises", {}),
    "a redirect": ("/moved", {}),
    "a streamed reply": ("/parts", {}),
    "a streamed reply, read in parts": ("/parts", {"stream": True}),
    "a timeout": ("/slow", {"timeout": 0.3}),
}
QUICK = ("ok", "a redirect")
BY_HTTP_CLIENT = ("urllib", "http.client", "urllib3")
"""What the standard library's client does otherwise is tested in ``test_http_server.py``."""
TRIED = [
    pytest.param(client, outcome, marks=[] if outcome in QUICK else [pytest.mark.longer, *rest])
    for client in CLIENTS
    for rest in [[pytest.mark.not_in_ci] if client in BY_HTTP_CLIENT else []]
    for outcome in OUTCOMES
]


@pytest.fixture(scope="module")
def gate() -> servers.Gate:
    return servers.Gate()


@pytest.fixture(scope="module", params=["wsgi", "asgi", "aiohttp_web", "http_server"])
def url(request: pytest.FixtureRequest, gate: servers.Gate) -> Iterator[str]:
    with getattr(servers, request.param)(gate) as url:
        until(lambda: "status" in CLIENTS["requests"](f"{url}/echo"))
        yield url


@pytest.fixture
def attached() -> Iterator[Callable[[], Agent]]:
    """Attach the agent when called."""
    yield lambda: stilltrue.instrument(service="here", instance="here", detector="127.0.0.1:1")
    stilltrue.uninstrument()


@pytest.fixture(autouse=True)
def gate_is_shut(gate: servers.Gate) -> Iterator[None]:
    gate.open.clear()
    while gate.arrived.acquire(blocking=False):
        pass
    yield
    gate.open.set()


def until(so: Callable[[], object]) -> None:
    end = time.monotonic() + SECONDS_MAX
    while not so():
        assert time.monotonic() < end
        time.sleep(0.01)


def in_flight(agent: Agent) -> tuple[int, int]:
    with agent.live.lock:
        agent.live.catch_up()
        return len(agent.live.recorder.calls_made), len(agent.live.recorder.calls_served)


@pytest.mark.parametrize(("client", "outcome"), TRIED)
def test_requests_behave_the_same_with_and_without_the_agent(
    url: str, client: str, outcome: str, attached: Callable[[], Agent], gate: servers.Gate
) -> None:
    path, options = OUTCOMES[outcome]
    plain = CLIENTS[client](f"{url}{path}", **options)
    agent = attached()
    before = agent.live.recorder.calls
    assert CLIENTS[client](f"{url}{path}", **options) == plain
    gate.open.set()
    until(lambda: in_flight(agent) == (0, 0))
    assert agent.live.recorder.calls > before
    assert agent.live.faults == 0
    assert agent.live.stamps_refused == 0


@pytest.mark.parametrize("client", CLIENTS)
def test_both_ends_record_a_request_while_it_lasts(
    url: str, client: str, attached: Callable[[], Agent], gate: servers.Gate
) -> None:
    agent = attached()
    asking = threading.Thread(target=CLIENTS[client], args=(f"{url}/slow",), daemon=True)
    asking.start()
    assert gate.arrived.acquire(timeout=SECONDS_MAX)
    made_here = agent.live.recorder.calls_made
    until(lambda: any(one.wait for one in made_here.values()))  # it asks for the reply after it has sent all
    report = agent.live.marked(agent.live.recorder.colour + 1)  # type: ignore[arg-type]  # the next snapshot
    assert report is not None
    (made,), (served,) = report.made, report.served
    assert served.caller is not None
    assert (served.caller.process, served.number) == (agent.process.instance, made.number)
    assert served.method == made.method == "GET /slow"
    assert served.party.startswith("here/GET:slow#")
    assert [wait.waiter for wait in report.waits if wait.waiter == made.party] == [made.party]
    gate.open.set()
    asking.join(SECONDS_MAX)
    until(lambda: in_flight(agent) == (0, 0))


def httpx_of_one_connection(url: str) -> None:
    limits = httpx.Limits(max_connections=1)
    with httpx.Client(limits=limits, timeout=None, trust_env=False) as client, ThreadPoolExecutor(2) as pool:
        list(pool.map(client.get, (url, url)))


def aio_httpx_of_one_connection(url: str) -> None:
    async def run() -> None:
        async with httpx.AsyncClient(limits=httpx.Limits(max_connections=1), timeout=None, trust_env=False) as client:
            await asyncio.gather(client.get(url), client.get(url))

    asyncio.run(run())


def requests_of_one_connection(url: str) -> None:
    with requests.Session() as session, ThreadPoolExecutor(2) as pool:
        session.trust_env = False
        session.mount("http://", requests.adapters.HTTPAdapter(pool_maxsize=1, pool_block=True))
        list(pool.map(session.get, (url, url)))


@pytest.mark.parametrize("ask", [httpx_of_one_connection, aio_httpx_of_one_connection, requests_of_one_connection])
def test_a_request_that_waits_for_a_connection_of_the_pool_does_not_wait_for_a_reply(
    url: str, ask: Callable[[str], None], attached: Callable[[], Agent], gate: servers.Gate
) -> None:
    """Otherwise the wait for the connection, and who has it, would never be looked for."""
    agent = attached()
    asking = threading.Thread(target=ask, args=(f"{url}/slow",), daemon=True)
    asking.start()
    assert gate.arrived.acquire(timeout=SECONDS_MAX)
    until(lambda: in_flight(agent) == (2, 1))
    report = agent.live.marked(agent.live.recorder.colour + 1)  # type: ignore[arg-type]  # the next snapshot
    assert report is not None
    (served,) = report.served
    waited_for = [target.number for wait in report.waits for target in wait.among if isinstance(target, CallTarget)]
    assert waited_for == [served.number]
    gate.open.set()
    asking.join(SECONDS_MAX)
    until(lambda: in_flight(agent) == (0, 0))


@pytest.mark.parametrize("client", ON_LOOP)
def test_a_cancelled_request_is_over_and_in_doubt(
    url: str, client: str, attached: Callable[[], Agent], gate: servers.Gate
) -> None:
    agent = attached()

    async def run() -> None:
        asking = asyncio.create_task(ON_LOOP[client](f"{url}/slow"))
        assert await asyncio.to_thread(gate.arrived.acquire, timeout=SECONDS_MAX)
        assert in_flight(agent)[0] == 1
        asking.cancel()
        with suppress(asyncio.CancelledError):
            await asking
        assert in_flight(agent)[0] == 0
        assert len(agent.live.recorder._in_doubt) == 1

    asyncio.run(run())
    gate.open.set()
    until(lambda: in_flight(agent) == (0, 0))


@pytest.mark.longer
@pytest.mark.parametrize("client", [one for one in CLIENTS if one not in BY_HTTP_CLIENT])
def test_many_concurrent_requests(url: str, client: str, attached: Callable[[], Agent]) -> None:
    agent = attached()
    with ThreadPoolExecutor(8) as pool:
        seen: list[Seen] = list(pool.map(CLIENTS[client], [f"{url}/echo"] * 24))
    assert {one["status"] for one in seen} == {200}
    until(lambda: in_flight(agent) == (0, 0))
    assert agent.live.faults == 0
