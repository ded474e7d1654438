"""restatedev/restate 199: two keyed services hold their key while they call each other; a key takes one call at a time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from field_program import FAR_SECONDS, MODE, join, ready, service

agent = join("restate")
agent.start()


class Keyed:
    """A service with one invocation at a time for each key."""

    def __init__(self, name: str) -> None:
        self.name = f"{service('restate')}:{name}"
        self.calls: asyncio.Queue[tuple[Callable[[], Awaitable[None]], asyncio.Future[None]]] = asyncio.Queue()

    async def take_calls(self) -> None:
        """The only writer of the key."""
        with agent.answers(self.name):
            while True:
                handler, done = await self.calls.get()
                await handler()  # until it ends, the key is held
                done.set_result(None)

    async def call(self, handler: Callable[[], Awaitable[None]]) -> None:
        done = self.send(handler)
        if MODE == "time_out":
            with agent.waiting_for(self.name):
                return await asyncio.wait_for(done, FAR_SECONDS)
        with agent.waiting_for(self.name):
            return await done  # core: restate x2 # behind: restate x2

    def send(self, handler: Callable[[], Awaitable[None]]) -> "asyncio.Future[None]":
        """One way: nobody waits for the end."""
        done = asyncio.get_running_loop().create_future()
        self.calls.put_nowait((handler, done))
        return done


async def nothing() -> None:
    """What the inner call does."""


def calls(callee: Keyed, both: asyncio.Barrier) -> Callable[[], Awaitable[Any]]:
    async def handler() -> None:
        await both.wait()
        if MODE == "one_way":
            callee.send(nothing)
        else:
            await callee.call(nothing)

    return handler


def begin() -> None:
    cart, stock, other_key, both = Keyed("cart/7"), Keyed("stock/7"), Keyed("cart/8"), asyncio.Barrier(2)
    inner = other_key if MODE == "another_key" else cart
    asks = (cart.call(calls(stock, both)), stock.call(calls(inner, both)))
    running.extend(asyncio.create_task(one) for one in (*(one.take_calls() for one in (cart, stock, other_key)), *asks))


async def main() -> None:
    begin()
    await asyncio.sleep(0.1)
    ready()
    await asyncio.Event().wait()


running: list[asyncio.Task[None]] = []
asyncio.run(main())
