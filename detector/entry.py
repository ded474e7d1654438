"""Entry point of the ``stilltrue`` command; it guards the imports, so that Ctrl-C never prints a traceback."""

from __future__ import annotations

import os
import sys
import traceback
from importlib import import_module


def main() -> None:
    """Run the command and exit. Ctrl-C during the imports exits without a traceback, too."""
    _open_closed_streams()
    try:
        command = import_module("detector.cli")
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception:  # noqa: BLE001 - the interpreter would exit with 1, which is an answer of `ask`
        traceback.print_exc()
        sys.exit(2)
    command.main()


def _open_closed_streams() -> None:
    """Open the null device for each standard stream that the caller has closed (``>&-``): it gets the stream's number."""
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: SIM115, PTH123
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115, PTH123
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115, PTH123
