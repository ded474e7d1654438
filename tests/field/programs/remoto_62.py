"""alfredodeza/remoto 62: a command's output is read to its end, then its errors; the command waits for room for its errors."""

import subprocess

from commands import command, end_later
from field_program import begin, join, stay
from served import serve

WRITES = "import sys; sys.stderr.write('x' * (1 << 20))"


def check(request: bytes, context: object) -> bytes:
    with subprocess.Popen(command(WRITES), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        end_later(process, process.stderr)
        output = process.stdout.read()  # core: remoto
        return bytes(output + process.stderr.read())


join("remoto")
call = serve(check)
begin(lambda: call(b""))  # behind: remoto
stay()
