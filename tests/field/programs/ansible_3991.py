"""ansible/ansible 3991: a program writes all of a command's input before it reads its output, for which there is no room."""

import os
import subprocess
import threading
from typing import Any

from commands import command
from field_program import FAR_SECONDS, MODE, begin, join, stay

ECHOES = "import sys\nfor line in sys.stdin: sys.stdout.write(line * 2)"
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
    with subprocess.Popen(command(ECHOES), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
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
