"""Lets a program go on only once it has been seen, where somebody watches."""

import os
import time

SECONDS_MAX = 60


def wait_until_seen():
    """Wait until the file that WATCHED names is there; without the variable, go on at once."""
    path = os.environ.get("WATCHED")
    end = time.monotonic() + SECONDS_MAX
    while path and not os.path.exists(path) and time.monotonic() < end:
        time.sleep(0.05)
