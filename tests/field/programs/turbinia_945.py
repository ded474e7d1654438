"""google/turbinia 945: a command's output goes to a pipe, which is read once the command has ended; it waits for room there."""

import subprocess

from commands import command, end_later
from field_program import FAR_SECONDS, MODE, begin, join, stay
from served import serve

WRITES = "import sys; sys.stdout.write('x' * (1 << 20))"


def execute(request: bytes, context: object) -> bytes:
    with subprocess.Popen(command(WRITES), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        end_later(process, process.stdout)
        process.wait(FAR_SECONDS if MODE == "patience" else None)  # core: turbinia
        return bytes(process.stdout.read())


join("turbinia")
call = serve(execute)
begin(lambda: call(b""))  # behind: turbinia
stay()
