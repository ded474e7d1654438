"""Code that leaves its loop by raising an exception, and so closes a channel, with near misses that never do."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from stilltrue import Agent
from tests.client.look.ways_out.closing import FAR_SECONDS, Holder, interrupted, may_close_the_channel
from tests.client.look.worlds import Stuck


class TooSlowError(Exception):
    """What a watchdog raises."""


class Watch:
    """A clock that raises when it is late."""

    def __init__(self, go: threading.Event) -> None:
        self.go = go
        self.late = time.monotonic() + FAR_SECONDS

    def look(self) -> None:
        """Raise if it is late."""
        if self.go.wait(FAR_SECONDS) or time.monotonic() > self.late:
            raise TooSlowError

    def watch_beside(self, owned: Any) -> None:
        """Look until it is late, and close it."""
        with contextlib.suppress(TooSlowError), contextlib.closing(owned):
            while True:
                self.look()


def waits_or_raises(go: threading.Event) -> None:
    if go.wait(FAR_SECONDS):
        raise TooSlowError


def raises_then_closes(owned: Any, go: threading.Event) -> None:
    with contextlib.suppress(TooSlowError):
        try:
            while True:
                late = go.wait(FAR_SECONDS)
                if late:
                    raise TooSlowError
        finally:
            owned.close()


def leaves_its_block_by_raising(owned: Any, go: threading.Event) -> None:
    with contextlib.suppress(AssertionError), contextlib.ExitStack() as stack:
        stack.callback(owned.close)
        while True:
            late = go.wait(FAR_SECONDS)
            assert not late


def has_a_function_raise(owned: Any, go: threading.Event) -> None:
    with contextlib.suppress(TooSlowError):
        try:
            while True:
                waits_or_raises(go)
        finally:
            owned.close()


def has_a_function_raise_later(owned: Any, go: threading.Event) -> None:
    with contextlib.suppress(TooSlowError), owned:
        while True:
            go.wait(FAR_SECONDS)
            waits_or_raises(go)


def has_a_method_raise(owned: Any, go: threading.Event) -> None:
    Watch(go).watch_beside(owned)


def passes_on_what_it_catches(owned: Any, go: threading.Event) -> None:
    with contextlib.suppress(ValueError):
        try:
            while True:
                try:
                    int("-" if go.wait(FAR_SECONDS) else "0")
                except ValueError:
                    if go.is_set():
                        raise
        finally:
            owned.close()


def catches_by_a_variable(owned: Any, go: threading.Event) -> None:
    errors = (ValueError, KeyError)
    try:
        while True:
            int("-" if go.wait(FAR_SECONDS) else "0")
    except errors:
        owned.close()


def catches_by_a_lower_case_name(owned: Any, go: threading.Event) -> None:
    try:
        while True:
            if go.wait(FAR_SECONDS):
                socket.inet_aton("-")
    except socket.error:  # noqa: UP024 - the test's point
        owned.close()


def raises_what_it_catches(owned: Any, go: threading.Event) -> None:
    try:
        while True:
            try:
                interrupted(go)
                if go.is_set():
                    raise TooSlowError  # noqa: TRY301 - the test's point
            except TooSlowError:
                pass
    finally:
        owned.close()


def raises_what_it_catches_among_all(owned: Any, go: threading.Event) -> None:
    try:
        while True:
            try:
                interrupted(go)
                if go.is_set():
                    raise TooSlowError  # noqa: TRY301 - the test's point
            except KeyError:
                pass
            except Exception:  # noqa: BLE001 - the test's point
                pass
    finally:
        owned.close()


def raises_after_a_flag(owned: Any, go: threading.Event) -> None:
    stop = threading.Event()
    try:
        while not stop.is_set():
            interrupted(go)
        raise TooSlowError
    finally:
        owned.close()


def has_a_function_raise_what_it_catches(owned: Any, go: threading.Event) -> None:
    def careful() -> None:
        with contextlib.suppress(KeyError):
            interrupted(go)

    try:
        while True:
            try:
                careful()
                Watch(go)
            except Exception:  # noqa: BLE001 - the test's point
                pass
    finally:
        owned.close()


GET_THERE: list[Holder] = [
    raises_then_closes, leaves_its_block_by_raising, has_a_function_raise, has_a_function_raise_later, has_a_method_raise,
    passes_on_what_it_catches, catches_by_a_variable, catches_by_a_lower_case_name,
]  # fmt: skip
DO_NOT: list[Holder] = [
    raises_what_it_catches, raises_what_it_catches_among_all, raises_after_a_flag, has_a_function_raise_what_it_catches,
]  # fmt: skip


@pytest.mark.parametrize("holder", [*GET_THERE, *DO_NOT], ids=lambda one: one.__name__)
def test_whether_code_that_raises_may_close_the_channel(alone: Callable[..., Agent], stuck: Stuck, holder: Holder) -> None:
    assert may_close_the_channel(alone, stuck, holder) is (holder in GET_THERE)
