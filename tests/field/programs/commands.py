"""A command that fills a pipe which nobody reads, and what ends the wait for it later in near misses."""

import sys
import threading
from typing import Any

from field_program import FAR_SECONDS, MODE, begin

if MODE == "alarm":
    from elsewhere import alarming
if MODE == "signalled":
    from elsewhere import signalling

LIVES_WITH_PARENT = "import ctypes; ctypes.CDLL(None).prctl(1, 9)"
"""Code by which the system kills the command once the program has ended."""
SLEEPS = f"import time; time.sleep({FAR_SECONDS})"
_SLEEPS_IN_A_THREAD = f"import threading, time; threading.Thread(target=time.sleep, args=({FAR_SECONDS},)).start()"


def command(code: str) -> list[str]:
    """A command that runs this code; what precedes or replaces it depends on the mode."""
    if MODE == "slow":
        code = SLEEPS
    if MODE == "alarm":
        code = f"{alarming.ENDS_LATER}; {code}"
    if MODE == "thread":
        code = f"{_SLEEPS_IN_A_THREAD}; {code}"
    return [sys.executable, "-Ic", f"{LIVES_WITH_PARENT}\n{code}"]


def end_later(process: Any, file: Any) -> None:
    """Begin what ends the wait later in this mode: ``file`` is read, or the process killed or signalled."""
    if MODE == "read":
        begin(_read, file)
    if MODE == "killed":
        begin(_kill, process)
    if MODE == "signalled":
        signalling.end_later(process.pid)


def _read(file: Any) -> None:
    threading.Event().wait(FAR_SECONDS)
    file.read()


def _kill(process: Any) -> None:
    threading.Event().wait(FAR_SECONDS)
    process.kill()
