"""Entry point of the ``stilltrue`` command; it guards the imports, so that Ctrl-C never prints a traceback."""

from __future__ import annotations

import sys
from importlib import import_module


def main() -> None:
    """Run the command and exit. Ctrl-C during the imports exits without a traceback, too."""
    try:
        command = import_module("detector.cli")
    except KeyboardInterrupt:
        sys.exit(130)
    command.main()
