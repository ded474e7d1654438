"""ansible/ansible 3991: a program writes all of a command's input before it reads its output, for which there is no room."""

import os
import subprocess
import sys
import threading
from typing import Any

from field_program import FAR_SECONDS, MODE, begin, join, stay

LIVES_WITH_PARENT = "import ctypes; ctypes.CDLL(None).prctl(1, 9)"
ECHOES = "import sys\nfor line in sys.stdin: sys.stdout.write(line * 2)"
SLOW = f"import time; time.sleep({FAR_SECONDS})"
LINES = 1 << 16
BEGUN = threading.Event()


def read_later(output: Any) -> None:
    BEGUN.set()
    threading.Event().wait(FAR_SECONDS)
    output.read()


def read_later_by_descriptor(descriptor: int) -> None:
    BEGUN.set()
    while not threading.Event().wait(FAR_SECONDS):
        os.read(descriptor, 1)


def run_with(lines: int) -> int:
    command = [sys.executable, "-Ic", f"{LIVES_WITH_PARENT}\n{SLOW if MODE == 'slow' else ECHOES}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        if MODE == "read":
            begin(read_later, process.stdout)
            BEGUN.wait()
        if MODE == "descriptor":
            begin(read_later_by_descriptor, process.stdout.fileno())
            BEGUN.wait()
        for _ in range(lines):
            process.stdin.write("one more line of a playbook\n")  # core: ansible
        process.stdin.close()
        return len(process.stdout.read())


join("ansible")
begin(run_with, LINES)
stay()
