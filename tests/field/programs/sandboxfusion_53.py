"""bytedance/SandboxFusion 53: a coroutine waits for the end of a program that it runs before it reads what that prints."""

import asyncio
import sys
import threading
from asyncio.subprocess import PIPE

import grpc
from field_program import FAR_SECONDS, MODE, begin, join, stay
from served import Call, serve_aio

LIVES_WITH_PARENT = "import ctypes; ctypes.CDLL(None).prctl(1, 9)"
PRINTS = "import sys; sys.stdout.write('x' * (1 << 22))"
PROGRAMS = {
    "slow": f"import time; time.sleep({FAR_SECONDS})",
}
if MODE == "alarm":
    from elsewhere import alarming

    PROGRAMS["alarm"] = f"{alarming.ENDS_LATER}; {PRINTS}"
TASKS = []


async def read_later(output: asyncio.StreamReader) -> None:
    await asyncio.sleep(FAR_SECONDS)
    await output.read()


async def run_code(request: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
    command = (sys.executable, "-Ic", f"{LIVES_WITH_PARENT}; {PROGRAMS.get(MODE, PRINTS)}")
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
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
