"""A look runs none of the application's code, not even that of an object whose ``__class__`` is computed.

Django's lazy settings are such an object, and a global of nearly every Django program.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from tests.client.look.worlds import look_at, of
from tests.client.waits.conftest import Front
from tests.client.waits.releasers.releasing import hold

FAR_SECONDS = 600.0
touched: list[str] = []


class Lazy:
    """Any access, even to its class, would first have to create it."""

    def __getattribute__(self, name: str) -> Any:
        touched.append(name)
        raise RuntimeError(f"not configured, and asked for {name}")


settings = Lazy()


class Keeper:
    """An object with a lazy attribute, whose methods read the global."""

    kind = settings

    def __init__(self) -> None:
        self.own = settings
        self.table = {"settings": settings, "all": [settings]}

    def waits(self, go: threading.Event, given: Any, *, named: Any = settings) -> None:
        local = settings
        go.wait(FAR_SECONDS)
        self.sweep(local, given, named)

    def sweep(self, *_: Any) -> None:
        with suppress(RuntimeError):
            settings.debug.release()


def test_an_object_that_would_have_to_be_made_first_is_left_alone(front: Front) -> None:
    lock, go = threading.Lock(), threading.Event()
    keeper, pool = Keeper(), ThreadPoolExecutor(1)
    item = pool.submit(keeper.waits, go, settings)
    queued = pool.submit(keeper.sweep, settings)
    timer = threading.Timer(FAR_SECONDS, keeper.sweep, (settings,))
    timer.daemon = True
    timer.start()
    hold(front, lock)
    touched.clear()  # pytest touched it, looking for tests in this module
    front.start("beside", keeper.waits, go, settings)
    try:
        report = front.report_when_still("waiter", "holder", "beside")
        look = of(look_at(front.agent, report), "front/thread:waiter")
        assert not look.doubt
        assert touched == []
    finally:
        queued.cancel()
        timer.cancel()
        go.set()
    item.result()
    pool.shutdown()
