"""Runs pytest: ``python -m tests.run``. Ctrl-C before the first test prints one line; after it, pytest's own summary.

Importing pytest and collecting take seconds, in which Ctrl-C would print a traceback, or wait for the workers to collect.
"""

from __future__ import annotations

import os
import signal
import sys

_SIGINT_BEFORE = signal.getsignal(signal.SIGINT)


def _end(*_: object) -> None:
    os.write(2, b"\ninterrupted before the first test\n")
    os._exit(130)


if __name__ == "__main__" and _SIGINT_BEFORE is signal.default_int_handler:
    signal.signal(signal.SIGINT, _end)

import pytest  # noqa: E402 (the handler is installed before this slow import)


class _FirstTest:
    @staticmethod
    def pytest_runtest_logstart() -> None:
        if signal.getsignal(signal.SIGINT) is _end:
            signal.signal(signal.SIGINT, _SIGINT_BEFORE)


if __name__ == "__main__":
    sys.exit(pytest.main(plugins=[_FirstTest()]))
