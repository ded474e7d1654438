"""What may end a request served by hypercorn: not its sibling tasks, unless the protocol or a setting makes them."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import httpx
import pytest

from stilltrue.runtime.introspection.tasks import awaiters, siblings_of

hypercorn = pytest.importorskip("hypercorn.asyncio")

SECONDS_MAX = 20.0
Look = Callable[[], bool]


async def _served(look: Callable[[Look], Any], *, http2: bool = False, own_trigger: bool = False, **settings: Any) -> Any:
    """Call ``look`` while a request waits in the application, with whether no sibling task ends the request."""
    arrived: asyncio.Future[asyncio.Task[Any]] = asyncio.get_running_loop().create_future()

    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            arrived.set_result(asyncio.current_task())  # type: ignore[arg-type]
            await asyncio.Event().wait()

    listener = socket.create_server(("127.0.0.1", 0))
    config = hypercorn.Config()
    config.bind, config.graceful_timeout, config.errorlog = [f"fd://{listener.fileno()}"], 0.1, None
    for name, value in settings.items():
        setattr(config, name, value)
    trigger = {"shutdown_trigger": asyncio.Event().wait} if own_trigger else {}
    serving = asyncio.create_task(hypercorn.serve(app, config, **trigger))
    async with httpx.AsyncClient(timeout=SECONDS_MAX, http2=http2, http1=not http2) as client:
        asking = asyncio.create_task(client.get(f"http://127.0.0.1:{listener.getsockname()[1]}/"))
        task = await asyncio.wait_for(arrived, SECONDS_MAX)
        await asyncio.sleep(0)
        found = await look(lambda: not awaiters(task) and not siblings_of(task))
        asking.cancel()
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.wait([asking, serving], timeout=SECONDS_MAX)
    listener.detach()
    return found


async def _at_once(look: Look) -> bool:
    return look()


def test_only_a_requests_own_code_ends_it() -> None:
    assert asyncio.run(_served(_at_once))


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"http2": True}, id="which another stream may make fail"),
        pytest.param({"own_trigger": True}, id="whose server the application may stop"),
        pytest.param({"max_requests": 100}, id="whose server stops after some requests"),
        pytest.param({"read_timeout": 60}, id="whose caller is taken for gone"),
    ],
)
def test_a_request(settings: dict[str, Any]) -> None:
    assert not asyncio.run(_served(_at_once, **settings))


def test_a_request_of_a_server_that_is_being_stopped() -> None:
    async def after_signal(look: Look) -> bool:
        assert look()
        signal.raise_signal(signal.SIGTERM)
        async with asyncio.timeout(SECONDS_MAX):
            while look():
                await asyncio.sleep(0.001)
        return look()

    assert not asyncio.run(_served(after_signal, graceful_timeout=5))
