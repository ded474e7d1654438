"""Strangers over HTTP: a caller that is not known to be a member gets no stamp."""

from __future__ import annotations

import http.client
import inspect
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

import stilltrue
from stilltrue.agent import Agent
from stilltrue.http.headers import ADDRESS, STAMP, address_text
from tests.http import servers

pytestmark = pytest.mark.slow

FORGED = "here;7;3;2;1"
KEY = "the-stamp-key-of-this-fleet"
Attach = Callable[..., Agent]


class Stranger(http.client.HTTPConnection):
    """A connection of a process without an agent."""

    endheaders = inspect.unwrap(http.client.HTTPConnection.endheaders)
    getresponse = inspect.unwrap(http.client.HTTPConnection.getresponse)


@pytest.fixture(scope="module", params=["wsgi", "asgi", "http_server"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    with getattr(servers, request.param)(servers.Gate()) as url:
        yield url


@pytest.fixture
def attached() -> Iterator[Attach]:
    yield lambda **more: stilltrue.instrument(service="here", instance="here", detector="127.0.0.1:1", **more)
    stilltrue.uninstrument()


def told(url: str, *headers: tuple[str, str], honest: bool = False) -> tuple[int, list[str]]:
    """Send a stranger's request; returns its status, and the names of our headers in the reply."""
    connection = Stranger(urlsplit(url).netloc, timeout=20)
    try:
        connection.connect()
        connection.putrequest("GET", "/echo")
        for name, value in headers:
            connection.putheader(name, value)
        if honest:
            connection.putheader(ADDRESS, address_text(connection.sock.getsockname()))
        connection.endheaders()
        reply = connection.getresponse()
        body = reply.read().decode()
    finally:
        connection.close()
    assert STAMP not in body
    return reply.status, [name for name, _ in reply.getheaders() if name.lower().startswith("stilltrue")]


@pytest.mark.parametrize(
    "headers",
    [
        (),
        ((STAMP, "nonsense"),),
        ((STAMP, FORGED), (STAMP, FORGED)),
        ((STAMP, f"{FORGED},{FORGED}"),),
        ((STAMP, FORGED),),
        ((STAMP, FORGED), (ADDRESS, "10.1.2.3 4")),
        ((STAMP, FORGED), ("via", "1.1 somebody")),
    ],
    ids=["none", "nonsense", "two", "two in one", "of no connection", "of another connection", "through a proxy"],
)
def test_a_caller_without_a_stamp_for_this_connection_learns_nothing(
    url: str, attached: Attach, headers: tuple[tuple[str, str], ...]
) -> None:
    agent = attached()
    assert told(url, *headers) == (200, [])
    assert agent.live.recorder._callers.seen() == ()


def test_with_a_key_a_forged_stamp_is_ignored_even_on_its_own_connection(url: str, attached: Attach) -> None:
    agent = attached(stamp_key=KEY)
    assert told(url, (STAMP, FORGED), honest=True) == (200, [])
    assert agent.live.recorder._callers.seen() == ()
    assert agent.live.stamps_refused == 1


def test_without_a_key_every_stamp_for_its_own_connection_is_trusted(url: str, attached: Attach) -> None:
    """As documented in docs/security.md; also shows that the tests above would notice if no stamp were ever sent."""
    agent = attached()
    status, names = told(url, (STAMP, FORGED), honest=True)
    assert (status, [name.lower() for name in names]) == (200, [STAMP])
    seen: Any = agent.live.recorder._callers.seen()
    assert [one.caller.process for one in seen] == ["here"]
