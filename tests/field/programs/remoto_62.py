"""alfredodeza/remoto 62: a command's output is read to its end, then its errors; the command waits for room for its errors."""

import subprocess
import sys
import threading
from typing import Any

from field_program import FAR_SECONDS, MODE, begin, join, stay
from served import serve

if MODE == "signalled":
    from elsewhere import signalling

LIVES_WITH_PARENT = "import ctypes; ctypes.CDLL(None).prctl(1, 9)"
WRITES = "import sys; sys.stderr.write('x' * (1 << 20))"
COMMANDS = {
    "slow": f"import time; time.sleep({FAR_SECONDS})",
    "output": f"import threading, time; threading.Thread(target=time.sleep, args=({FAR_SECONDS},)).start(); {WRITES}",
}
if MODE == "alarm":
    from elsewhere import alarming

    COMMANDS["alarm"] = f"{alarming.ENDS_LATER}; {WRITES}"


def read_later(errors: Any) -> None:
    threading.Event().wait(FAR_SECONDS)
    errors.read()


def kill_later(process: Any) -> None:
    threading.Event().wait(FAR_SECONDS)
    process.kill()


def check(request: bytes, context: object) -> bytes:
    command = [sys.executable, "-Ic", f"{LIVES_WITH_PARENT}; {COMMANDS.get(MODE, WRITES)}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        if MODE == "read":
            begin(read_later, process.stderr)
        if MODE == "killed":
            begin(kill_later, process)
        if MODE == "signalled":
            signalling.end_later(process.pid)
        output = process.stdout.read()  # core: remoto
        return bytes(output + process.stderr.read())


join("remoto")
call = serve(check)
begin(lambda: call(b""))  # behind: remoto
stay()
