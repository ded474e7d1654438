"""Entry point of the ``stilltrue`` command; it guards the imports, so that Ctrl-C never prints a traceback."""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module


def main() -> None:
    """Run the command and exit. Ctrl-C during the imports ends the process without a traceback, too."""
    raises = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # it may be ignored, as in a shell's background job
    if raises:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    _open_closed_streams()
    try:
        command = import_module("detector.cli")
    except Exception:  # noqa: BLE001 - the interpreter would exit with 1, which is an answer of `ask`
        import_module("traceback").print_exc()
        sys.exit(2)
    try:
        if raises:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        command.main()
    except KeyboardInterrupt:
        sys.exit(130)


def _open_closed_streams() -> None:
    """Open the null device for each standard stream that the caller has closed (``>&-``): it gets the stream's number."""
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: SIM115, PTH123
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115, PTH123
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115, PTH123
