"""Live HTTP services, requests to them, and the detector's verdicts, for the tests of cycles."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rich.console import Console

from detector.demo.demos import Demo
from detector.demo.harness import Harness

PROGRAMS = Path(__file__).parent / "programs"
SECONDS_MAX = 120.0
Start = Callable[..., "Shop"]
"""Starts a program of ``PROGRAMS`` by its name, as the service of another name."""


class Shop:
    """One process of the program, with an HTTP server."""

    def __init__(self, name: str, program: Path, arguments: Sequence[str], detector: str) -> None:
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, str(program), name, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "STILLTRUE_DETECTOR": detector},
        )
        assert self.process.stdout is not None
        where = json.loads(self.process.stdout.readline())
        self.url: str = where["http"]
        self.grpc: str = where["grpc"]

    def stop(self) -> None:
        self.process.kill()
        self.process.communicate()


def get(url: str) -> threading.Thread:
    """Request ``url`` in a new thread, from outside: this process has no agent."""

    def run() -> None:
        with suppress(OSError, urllib.error.HTTPError):
            urllib.request.urlopen(url, timeout=SECONDS_MAX * 2).read()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def kinds(parties: list[str]) -> set[str]:
    """Shorten ``a3-c0ffee/GET:hold#7`` to ``a/GET:hold``."""
    return {re.sub(r"^(\w)\S*?/", r"\1/", re.sub(r"#\d+.*$", "", party)) for party in parties}


def ask(harness: Harness, predicate: str) -> dict[str, Any]:
    """The verdict as ``stilltrue ask --json`` prints it; no process is started for it, since the tests ask many times."""
    return Demo(harness, Console(file=sys.stderr)).verdict(predicate)


def until(what: str, so: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS_MAX
    while not so():
        assert time.monotonic() < end, what
        time.sleep(0.2)


def until_true(harness: Harness, predicate: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = []

    def holds() -> bool:
        found.append(ask(harness, predicate))
        return found[-1]["holds"] is True

    until(f"{predicate} to hold", holds)
    return found[-1]


def until_waiting(harness: Harness, party: str) -> None:
    """Wait until a party with this name prefix waits for a lock, so that all steps before that are done."""

    def waits() -> bool:
        snapshot = ask(harness, "deadlock")["snapshot"]["id"]
        document = json.loads(harness.run("show", str(snapshot), "--format", "json").stdout)
        return any(wait["waiter"].startswith(party) for wait in document["waits"])

    until(f"{party} to wait", waits)


def chain(*urls: str, limit: str = "") -> str:
    """Each URL requests the next one; the one before the last has a timeout."""
    whole = urls[-1]
    for at, url in enumerate(reversed(urls[:-1])):
        whole = f"{url}?next={quote(whole, safe='')}{limit if at == 0 else ''}"
    return whole
