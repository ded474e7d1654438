"""apache/shenyu 6612: code on an event loop blocks until something has run on that same loop."""

import asyncio

from field_program import FAR_SECONDS, MODE, begin, join, stay


async def look_up() -> str:
    return "127.0.0.1"


def resolve(loop: asyncio.AbstractEventLoop) -> str:
    """Written for other threads; a handler on the loop calls it all the same."""
    future = asyncio.run_coroutine_threadsafe(look_up(), loop)
    if MODE == "time_out":
        return future.result(FAR_SECONDS)
    return future.result()  # core: gateway


async def handle() -> str:
    loop = asyncio.get_running_loop()
    if MODE == "in_a_thread":
        return await loop.run_in_executor(None, resolve, loop)
    return resolve(loop)


join("gateway")
gateway = asyncio.new_event_loop()
begin(gateway.run_forever)
asyncio.run_coroutine_threadsafe(handle(), gateway)
stay()
