"""What a holder's code ends several functions further on counts like what it ends itself."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import pytest

from stilltrue import Agent
from tests.client.look.ways_out.closing import FAR_SECONDS, Holder, may_close_the_channel
from tests.client.look.worlds import Stuck


class Watchdog:
    """Restarts a service when it makes no progress; each step is a method of its own."""

    def __init__(self, owned: Any) -> None:
        self.owned = owned

    def recover(self) -> None:
        """Begin."""
        self.report()
        self.restart()

    def report(self) -> None:
        """Say so."""
        print("no progress")

    def restart(self) -> None:
        """The second step."""
        self.tear_down()

    def tear_down(self) -> None:
        """The third step."""
        self.end()

    def end(self) -> None:
        """Do nothing."""


class Closing(Watchdog):
    def end(self) -> None:
        self.owned.close()


class Exiting(Watchdog):
    def end(self) -> None:
        os._exit(1)


def recovers_by(kind: type[Watchdog]) -> Holder:
    def recovers(owned: Any, go: threading.Event) -> None:
        watchdog = kind(owned)
        if not go.wait(FAR_SECONDS):
            watchdog.recover()

    return recovers


def recovers_later_by(kind: type[Watchdog]) -> Holder:
    def sets_a_timer(owned: Any, go: threading.Event) -> None:
        timer = threading.Timer(FAR_SECONDS, kind(owned).recover)
        timer.start()
        go.wait()
        timer.cancel()

    return sets_a_timer


@pytest.mark.parametrize("holds", [recovers_by, recovers_later_by], ids=lambda one: str(one.__name__))
@pytest.mark.parametrize(("kind", "expected"), [(Closing, True), (Exiting, True), (Watchdog, False)])
def test_a_watchdog_whose_last_step_ends_the_wait(
    alone: Callable[..., Agent], stuck: Stuck, holds: Callable[[type[Watchdog]], Holder], kind: type[Watchdog], expected: bool
) -> None:
    assert may_close_the_channel(alone, stuck, holds(kind)) is expected
