"""google/turbinia 945: a command's output goes to a pipe, which is read once the command has ended; it waits for room there."""

import subprocess
import sys
import threading
from typing import Any

from field_program import FAR_SECONDS, MODE, begin, join, stay
from served import serve

if MODE == "signalled":
    from elsewhere import signalling

SIZE = 1 << 20
LIVES_WITH_PARENT = "import ctypes; ctypes.CDLL(None).prctl(1, 9)"
WRITES = f"import sys; sys.stdout.write('x' * {SIZE})"
COMMANDS = {
    "slow": f"import time; time.sleep({FAR_SECONDS})",
    "thread": f"import threading, time; threading.Thread(target=time.sleep, args=({FAR_SECONDS},)).start(); {WRITES}",
}
if MODE == "alarm":
    from elsewhere import alarming

    COMMANDS["alarm"] = f"{alarming.ENDS_LATER}; {WRITES}"


def read_later(process: Any) -> None:
    threading.Event().wait(FAR_SECONDS)
    process.stdout.read()


def kill_later(process: Any) -> None:
    threading.Event().wait(FAR_SECONDS)
    process.kill()


def execute(request: bytes, context: object) -> bytes:
    command = [sys.executable, "-Ic", f"{LIVES_WITH_PARENT}; {COMMANDS.get(MODE, WRITES)}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        if MODE == "read":
            begin(read_later, process)
        if MODE == "killed":
            begin(kill_later, process)
        if MODE == "signalled":
            signalling.end_later(process.pid)
        process.wait(FAR_SECONDS if MODE == "patience" else None)  # core: turbinia
        return bytes(process.stdout.read())


join("turbinia")
call = serve(execute)
begin(lambda: call(b""))  # behind: turbinia
stay()
