"""bytedance/SandboxFusion 53: a coroutine waits for the end of a program that it runs before it reads what that prints."""

import asyncio
import threading
from asyncio.subprocess import PIPE

import grpc
from commands import command
from field_program import FAR_SECONDS, MODE, begin, join, stay
from served import Call, serve_aio

PRINTS = "import sys; sys.stdout.write('x' * (1 << 22))"
TASKS = []


async def read_later(output: asyncio.StreamReader) -> None:
    await asyncio.sleep(FAR_SECONDS)
    await output.read()


async def run_code(request: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
    process = await asyncio.create_subprocess_exec(*command(PRINTS), stdout=PIPE, stderr=PIPE)
    assert process.stdout is not None
    if MODE == "read":
        TASKS.append(asyncio.create_task(read_later(process.stdout)))
    if MODE == "killed":
        asyncio.get_running_loop().call_later(FAR_SECONDS, process.kill)
    if MODE == "patience":
        await asyncio.wait_for(process.wait(), FAR_SECONDS)
    else:
        await process.wait()  # core: sandbox
    return await process.stdout.read()


def run_one(call: Call) -> None:
    begin(lambda: call(b""))  # behind: sandbox


join("sandbox")
threading.Thread(target=asyncio.run, args=(serve_aio(run_code, run_one),), daemon=True).start()
stay()
