"""empicano/aiomqtt 174: a callback that was written for other threads is called by the loop, and waits for that loop."""

import asyncio
import threading
from concurrent.futures import Future

from field_program import FAR_SECONDS, MODE, begin, join, stay

client = asyncio.new_event_loop()


async def add_writer() -> None:
    pass


def cancel_later(future: "Future[None]") -> None:
    threading.Event().wait(FAR_SECONDS)
    future.cancel()


def on_socket_register_write() -> None:
    future = asyncio.run_coroutine_threadsafe(add_writer(), client)
    if MODE == "cancelled":
        begin(cancel_later, future)
    if MODE == "limit":
        future.result(FAR_SECONDS)
    else:
        future.result()  # core: client


async def publish() -> None:
    """Send a message: the library's own code calls back whenever it has data to write."""
    if MODE == "in_a_thread":
        client.run_in_executor(None, on_socket_register_write)
        await asyncio.sleep(FAR_SECONDS)
    client.call_soon(on_socket_register_write)
    await asyncio.sleep(0)


join("client")
begin(client.run_forever)
asyncio.run_coroutine_threadsafe(publish(), client)
stay()
