"""Libraries that are not recorded are named as blind spots, and a request that passes two hooks is recorded once."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import flask
import pytest
import uvicorn
from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.const import Cardinality, Handler
from grpclib.encoding.base import CodecBase
from grpclib.server import Server

import stilltrue
from stilltrue.agent import Agent

SECONDS_MAX = 60.0


class Raw(CodecBase):
    """Messages are bytes."""

    __content_subtype__ = "raw"

    def encode(self, message: Any, message_type: Any) -> bytes:
        return bytes(message)

    def decode(self, data: bytes, message_type: Any) -> bytes:
        return data


class Echo:
    """A grpclib service."""

    def __mapping__(self) -> dict[str, Handler]:
        async def echo(stream: Any) -> None:
            await stream.send_message(await stream.recv_message())

        return {"/a.Echo/Echo": Handler(echo, Cardinality.UNARY_UNARY, bytes, bytes)}


@pytest.fixture
def agent() -> Iterator[Agent]:
    yield stilltrue.instrument(service="here", instance="here", detector="127.0.0.1:1")
    stilltrue.uninstrument()


def blind(agent: Agent) -> list[str]:
    found: list[str] = agent.sight.counts()["blind"]
    return sorted(found)


@asynccontextmanager
async def echo() -> AsyncIterator[Callable[[bytes], Awaitable[Any]]]:
    server = Server([Echo()], codec=Raw())
    await server.start("127.0.0.1", 0)
    listening: Any = server._server
    channel = Channel("127.0.0.1", listening.sockets[0].getsockname()[1], codec=Raw())
    yield UnaryUnaryMethod(channel, "/a.Echo/Echo", bytes, bytes)
    channel.close()
    server.close()
    await server.wait_closed()


def test_channels_and_servers_of_grpclib_are_blind_spots_while_they_exist(agent: Agent) -> None:
    async def calls() -> tuple[Any, list[str]]:
        async with echo() as call:
            assert blind(agent) == ["1 server of grpclib, whose calls are not recorded"]
            return await call(b"said"), blind(agent)

    reply, seen = asyncio.run(calls())
    assert reply == b"said"
    assert seen == [f"1 {one} of grpclib, whose calls are not recorded" for one in ("channel", "server")]
    gc.collect()
    assert blind(agent) == []


def test_an_unused_grpclib_channel_is_not_a_blind_spot(agent: Agent) -> None:
    async def makes() -> None:
        channel = Channel("127.0.0.1", 1, codec=Raw())
        assert blind(agent) == []
        channel.close()

    asyncio.run(makes())


class Served(uvicorn.Server):
    """An uvicorn server in a thread of this process."""

    def install_signal_handlers(self) -> None:
        """Keep the test's own handlers."""


@pytest.mark.parametrize("interface", ["wsgi", "asgi3"])
def test_a_request_is_recorded_once_at_each_end_whatever_uvicorn_runs(agent: Agent, interface: Any) -> None:
    application = flask.Flask("here")
    application.add_url_rule("/", view_func=lambda: "flask")

    async def bare(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"bare"})

    chosen: Any = application if interface == "wsgi" else bare
    server = Served(uvicorn.Config(chosen, port=0, interface=interface, lifespan="off", log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    end = time.monotonic() + SECONDS_MAX
    while not server.started:
        assert time.monotonic() < end
        time.sleep(0.01)
    url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    assert urllib.request.urlopen(url, timeout=SECONDS_MAX).read() == (b"flask" if interface == "wsgi" else b"bare")
    assert agent.sight.counts()["calls"] == 2
    server.should_exit = True
    thread.join(SECONDS_MAX)
    assert not thread.is_alive()
