"""A coroutine runs a child process under a lock; the child calls a method of the same server that needs the lock."""

import asyncio
import sys
import threading

import grpc
from field_program import FAR_SECONDS, MODE, PROCESS, begin, end_with_parent, join, publish, published, stay


def child() -> None:
    end_with_parent()
    join("renderer")
    fetch = grpc.insecure_channel(f"127.0.0.1:{published('site')}").unary_unary("/Site/Fetch")
    fetch(b"", timeout=FAR_SECONDS if MODE == "deadline" else None)  # core: renderer


async def kill_later(process: asyncio.subprocess.Process) -> None:
    await asyncio.sleep(FAR_SECONDS)
    process.kill()


async def serve() -> None:
    lock = asyncio.Lock()
    tasks = []

    async def render(request: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
        async with lock:
            command = (sys.executable, __file__, MODE, "child")
            process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
            if MODE == "killed":
                tasks.append(asyncio.create_task(kill_later(process)))
            if MODE == "patience":
                output, _ = await asyncio.wait_for(process.communicate(), FAR_SECONDS)
            else:
                output, _ = await process.communicate()  # core: site
            return output

    async def fetch(request: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
        if MODE == "free":
            await asyncio.sleep(FAR_SECONDS)
        publish("asked", "")
        async with lock:  # core: site
            return b""

    server = grpc.aio.server()
    handlers = {"Render": grpc.unary_unary_rpc_method_handler(render), "Fetch": grpc.unary_unary_rpc_method_handler(fetch)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Site", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    publish("site", str(port))
    await server.start()
    begin(lambda: grpc.insecure_channel(f"127.0.0.1:{port}").unary_unary("/Site/Render")(b""))  # behind: site
    await server.wait_for_termination()


def site() -> None:
    join("site")
    threading.Thread(target=asyncio.run, args=(serve(),), daemon=True).start()
    if MODE != "free":
        published("asked")
    stay()


child() if PROCESS else site()
