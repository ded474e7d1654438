"""A proxy stands for another object: who has one may end what the object ends."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from stilltrue import Agent
from tests.client.look.worlds import Stuck, look_at_caller

local = pytest.importorskip("werkzeug.local")
FAR_SECONDS = 60.0
_CALLS: list[Any] = []
_PROXIES: list[Any] = []
_OTHERS: list[Any] = []
_CURRENT: Any = local.LocalProxy(lambda: _CALLS[0])
_NOTHING: Any = local.LocalProxy(lambda: _OTHERS[0])


class Other:
    def cancel(self) -> None:
        """Does nothing."""


def cancels_by_weak_proxies() -> None:
    for one in _PROXIES:
        one.cancel()


def cancels_others_by_weak_proxies() -> None:
    for one in _OTHERS:
        one.cancel()


def cancels_the_current_one() -> None:
    _CURRENT.cancel()


def cancels_another_current_one() -> None:
    _NOTHING.cancel()


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (cancels_by_weak_proxies, True),
        (cancels_others_by_weak_proxies, False),
        (cancels_the_current_one, True),
        (cancels_another_current_one, False),
    ],
)
def test_who_has_a_proxy_of_a_call_may_cancel_it(
    alone: Callable[..., Agent], stuck: Stuck, act: Callable[[], None], expected: bool
) -> None:
    other = Other()
    _OTHERS.append(weakref.proxy(other))
    over = threading.Event()

    def beside() -> None:
        if not over.wait(FAR_SECONDS):
            act()

    def caller(get: Any) -> None:
        call = get.future(b"")
        _CALLS.append(call)
        _PROXIES.append(weakref.proxy(call))
        call.result()

    thread = threading.Thread(target=beside)
    thread.start()
    seen = look_at_caller(alone, stuck, caller)
    over.set()
    thread.join()
    for every in (_CALLS, _PROXIES, _OTHERS):
        every.clear()
    assert bool(seen.ways_out) is expected
