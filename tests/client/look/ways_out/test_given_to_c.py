"""Code in C calls what it was given at any time, on a thread that has no Python frame until then."""

from __future__ import annotations

import ctypes
import importlib.util
import threading
from collections.abc import Callable
from typing import Any

import pytest

from stilltrue import Agent
from stilltrue.runtime import compat
from stilltrue.runtime.look.called_code import given_to_c
from tests.client.look.ways_out.closing import interrupted, may_close_the_channel, sets_after
from tests.client.look.worlds import Stuck, look_at, look_at_caller, of
from tests.client.waits.conftest import Front, front

__all__ = ["front"]
Given = Callable[[Callable[[], object]], Any]
_CALLS: list[Any] = []
_RUNS = ctypes.CFUNCTYPE(None)


def by_cffi(function: Callable[[], object]) -> Any:
    """As a library that is bound by cffi takes its callbacks."""
    cffi: Any = importlib.import_module("cffi")
    return cffi.FFI().callback("void(void)")(function)


_WITH_CFFI = pytest.mark.skipif(importlib.util.find_spec("cffi") is None, reason="cffi is not installed")
GIVEN = pytest.mark.parametrize("given", [pytest.param(_RUNS, id="ctypes"), pytest.param(by_cffi, id="cffi", marks=_WITH_CFFI)])


def cancels() -> None:
    for call in _CALLS:
        call.cancel()


def counts() -> None:
    len(_CALLS)


@GIVEN
@pytest.mark.parametrize(("act", "expected"), [(cancels, True), (counts, False)])
def test_what_code_in_c_was_given_to_call_may_cancel_a_call(
    alone: Callable[..., Agent], stuck: Stuck, given: Given, act: Callable[[], None], expected: bool
) -> None:
    def caller(get: Any) -> None:
        _CALLS.append(get.future(b""))
        _CALLS[0].result()

    kept = given(act)
    seen = look_at_caller(alone, stuck, caller)
    _CALLS.clear()
    assert bool(seen.ways_out) is expected
    assert kept is not None


@GIVEN
def test_what_it_was_given_may_close_a_channel(alone: Callable[..., Agent], stuck: Stuck, given: Given) -> None:
    kept: list[Any] = []

    def gives(channel: Any, go: threading.Event) -> None:
        kept.append(given(channel.close))
        interrupted(go)

    assert may_close_the_channel(alone, stuck, gives)
    assert kept


@pytest.mark.parametrize("known", [True, False])
def test_what_it_was_given_may_wake_a_party_that_closes_a_channel(
    alone: Callable[..., Agent], stuck: Stuck, known: bool
) -> None:
    kept: list[Any] = []
    down = threading.Event()

    def closes(channel: Any, go: threading.Event) -> None:
        kept.append(_RUNS(down.set) if known else None)
        threading.Thread(target=sets_after, args=(go, down), daemon=True).start()
        down.wait()
        channel.close()

    assert may_close_the_channel(alone, stuck, closes) is known
    assert kept


def test_what_it_was_given_may_release_a_lock(front: Front) -> None:
    lock = threading.Lock()

    def holds() -> None:
        with lock:
            front.get(b"")

    def waits() -> None:
        with lock:
            pass

    def releases() -> None:
        if lock.locked():
            lock.release()

    kept = _RUNS(releases)
    front.hold(holds)
    front.start("waiter", waits)
    report = front.report_when_still("waiter", "holder")
    seen = of(look_at(front.agent, report), "front/thread:waiter")
    front.let_go()
    assert seen.unchanged
    assert any("code in C" in way.text for way in seen.ways_out)
    assert kept


def test_objects_are_not_searched_where_nothing_is_given_to_c(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat, "kinds_of_c_callbacks", frozenset)
    monkeypatch.setattr(given_to_c, "objects_of", pytest.fail)
    given_to_c.clear_caches()
    assert given_to_c.functions_given_to_c() == ()
    given_to_c.clear_caches()
