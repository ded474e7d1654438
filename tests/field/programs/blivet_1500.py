"""storaged-project/blivet 1500: `__str__` needs the library's lock; a log handler calls it under its own."""

import logging
import threading

from field_program import FAR_SECONDS, MODE, begin, join, stay

LIBRARY = threading.RLock()
LOG = logging.getLogger("blivet")
formatting, locked = threading.Event(), threading.Event()


class Device:
    """A device whose text needs the library's lock."""

    def __str__(self) -> str:
        formatting.set()
        locked.wait()
        if MODE == "slow":
            threading.Event().wait(FAR_SECONDS)
        if MODE == "patience" and not LIBRARY.acquire(timeout=FAR_SECONDS):
            return "a device"
        with LIBRARY:  # core: installer
            return "a device"


def report(device: Device) -> None:
    LOG.info("resized %s", device)


def resize() -> None:
    with LIBRARY:
        formatting.wait()
        locked.set()
        LOG.info("resizing")  # core: installer


if __name__ == "__main__":
    join("installer")
    LOG.addHandler(logging.FileHandler("/dev/null"))
    LOG.propagate = False
    LOG.setLevel(logging.INFO)
    begin(report, Device())
    begin(resize)
    locked.wait()
    stay()
