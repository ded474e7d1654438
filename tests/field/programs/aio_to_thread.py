"""Handlers on a loop call the same server from threads of the loop's executor; each such call needs a thread of it, too."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from field_program import FAR_SECONDS, MODE, begin, join, stay
from served import Call, serve_aio

calls: list[Call] = []
both = threading.Barrier(2)


def ask() -> bytes:
    both.wait()
    return calls[0](b"part", timeout=FAR_SECONDS if MODE == "deadline" else None)  # core: site x2


def part() -> bytes:
    if MODE == "thread":
        threading.Event().wait(FAR_SECONDS)
    return b""


async def render(request: bytes, context: Any) -> bytes:
    run = part if request else ask
    if MODE == "limit":
        return await asyncio.wait_for(asyncio.to_thread(run), FAR_SECONDS)
    return await asyncio.to_thread(run)  # core: site x2  # behind: site x2


def clients(call: Call) -> None:
    calls.append(call)
    for _ in range(2):
        begin(lambda: call(b""))  # behind: site x2


async def main() -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(3 if MODE == "thread" else 2))
    await serve_aio(render, clients)


join("site")
begin(asyncio.run, main())
stay()
