"""Widely known: two threads wait for each other's event before they set their own."""

import code
import signal
import sys
import threading
import time

from field_program import FAR_SECONDS, MODE, begin, join, ready, stay

parsed, loaded = threading.Event(), threading.Event()
TIMEOUT = FAR_SECONDS if MODE == "time_out" else None
COMMANDS = {"skip": parsed.set} if MODE == "by_name" else {}


def parse() -> None:
    """Needs the tables that the other loads."""
    loaded.wait(TIMEOUT)  # core: reader
    parsed.set()


def load() -> None:
    """Needs to know which tables the parsed text names."""
    parsed.wait()  # core: reader
    loaded.set()


def watch() -> None:
    """Gives up on the text, much later."""
    time.sleep(FAR_SECONDS)
    parsed.set()


join("reader")
if MODE == "on_signal":
    signal.signal(signal.SIGUSR1, lambda *_: parsed.set())
if MODE == "watchdog":
    begin(watch)
if MODE == "timer":
    threading.Timer(FAR_SECONDS, loaded.set).start()
begin(parse)
begin(load)
if MODE in ("by_name", "at_end"):
    ready()
    command = sys.stdin.readline()
    COMMANDS.get(command, parsed.set)()
if MODE == "typed":
    ready()
    code.interact(banner="", local=globals())
stay()
