"""Code that may close the channel after a polled flag changes, each with a near miss whose flag never changes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from stilltrue import Agent
from tests.client.look.ways_out import polled_module
from tests.client.look.ways_out.closing import (
    FAR_SECONDS,
    Ended,
    Holder,
    Other,
    may_close_the_channel,
    sleeps_then_calls,
)
from tests.client.look.worlds import Stuck


class Looping:
    """Runs until it is told to stop, as servers and workers do."""

    def __init__(self, owned: Any, go: threading.Event) -> None:
        self.owned, self.go, self.running, self.state = owned, go, True, "up"
        self._stopped = threading.Event()

    @property
    def stopped(self) -> bool:
        """Whether it was told to stop."""
        return self._stopped.is_set()

    def is_stopped(self) -> bool:
        """The same as a method."""
        return self._stopped.is_set()

    def tick(self) -> None:
        """Run one round; at the end of the test the polled value changes."""
        if self.go.wait(0.05):
            raise Ended

    def tick_and_stop(self) -> None:
        """Run one round, perhaps the last."""
        self.running = not self.go.wait(0.05)

    def by_attribute(self) -> None:
        """Poll an attribute."""
        while self.running:
            self.tick()
        self.owned.close()

    def by_state(self) -> None:
        """Compare an attribute."""
        while self.state == "up":
            self.tick()
        self.owned.close()

    def by_property(self) -> None:
        """Poll a property that reads an event."""
        while not self.stopped:
            self.tick()
        self.owned.close()

    def by_method(self) -> None:
        """Poll a method that reads an event."""
        while True:
            if self.is_stopped():
                break
            self.tick()
        self.owned.close()

    def by_own_method(self) -> None:
        """Poll an attribute that its own rounds set."""
        while self.running:
            self.tick_and_stop()
        self.owned.close()

    def polls_slowly(self) -> None:
        """Poll the flag only after the first round."""
        while True:
            if self.go.wait(FAR_SECONDS):
                raise Ended
            if self.is_stopped():
                break
        self.owned.close()

    def tick_while_down(self) -> None:
        """The same with an attribute."""
        while True:
            if self.go.wait(FAR_SECONDS):
                raise Ended
            if self.running is False:
                break
        self.owned.close()

    def stop(self) -> None:
        """Tell it to stop."""
        self.running = False
        self.state = "down"
        self._stopped.set()


def polls_an_event(owned: Any, go: threading.Event) -> None:
    over = threading.Event()
    while not over.wait(0.05):
        if go.is_set():
            raise Ended
    owned.close()


def polls_an_attribute(owned: Any, go: threading.Event) -> None:
    Looping(owned, go).by_attribute()


def polls_a_state(owned: Any, go: threading.Event) -> None:
    Looping(owned, go).by_state()


def polls_a_property(owned: Any, go: threading.Event) -> None:
    Looping(owned, go).by_property()


def polls_a_method(owned: Any, go: threading.Event) -> None:
    Looping(owned, go).by_method()


def polls_an_item(owned: Any, go: threading.Event) -> None:
    flags = {"stop": False}
    while not flags["stop"]:
        interrupted_soon(go)
    owned.close()


def polls_a_variable(owned: Any, go: threading.Event) -> None:
    running = True

    def stops() -> None:
        nonlocal running
        running = False

    signal_handlers = [stops]
    while running:
        interrupted_soon(go)
    owned.close()
    assert signal_handlers


def polls_who_never_ends(owned: Any, go: threading.Event) -> None:
    waiter = threading.Thread(target=go.wait)
    waiter.start()
    while waiter.is_alive():
        waiter.join(0.05)
    owned.close()


def polls_what_is_set_already(owned: Any, go: threading.Event) -> None:
    looping = Looping(owned, go)
    looping.stop()
    looping.polls_slowly()


def polls_a_state_that_is_reached(owned: Any, go: threading.Event) -> None:
    looping = Looping(owned, go)
    looping.running = False
    looping.tick_while_down()


def returns_from_a_poll(owned: Any, go: threading.Event) -> None:
    polls_an_event(Other(), go)
    owned.close()


def interrupted_soon(go: threading.Event) -> None:
    """One round of a loop that is interrupted at the end of the test."""
    if go.wait(0.05):
        raise Ended


def polls_an_event_that_is_set_later(owned: Any, go: threading.Event) -> None:
    over = threading.Event()
    threading.Thread(target=sleeps_then_calls, args=(go, over.set)).start()
    while not over.is_set():
        interrupted_soon(go)
    owned.close()


def polls_an_attribute_that_is_set_later(owned: Any, go: threading.Event) -> None:
    looping = Looping(owned, go)
    threading.Thread(target=sleeps_then_calls, args=(go, looping.stop)).start()
    looping.by_attribute()


def polls_a_property_that_a_timer_changes(owned: Any, go: threading.Event) -> None:
    looping = Looping(owned, go)
    timer = threading.Timer(FAR_SECONDS, looping.stop)
    timer.start()
    try:
        looping.by_property()
    finally:
        timer.cancel()


def polls_what_its_rounds_set(owned: Any, go: threading.Event) -> None:
    Looping(owned, go).by_own_method()


def polls_a_variable_that_a_timer_sets(owned: Any, go: threading.Event) -> None:
    running = True

    def stops() -> None:
        nonlocal running
        running = False

    timer = threading.Timer(FAR_SECONDS, stops)
    timer.start()
    try:
        while running:
            interrupted_soon(go)
        owned.close()
    finally:
        timer.cancel()


def polls_an_item_that_is_set_later(owned: Any, go: threading.Event) -> None:
    flags = {"stop": False}

    def stops() -> None:
        flags["stop"] = True

    threading.Thread(target=sleeps_then_calls, args=(go, stops)).start()
    while not flags["stop"]:
        interrupted_soon(go)
    owned.close()


def polls_who_sleeps(owned: Any, go: threading.Event) -> None:
    sleeper = threading.Thread(target=lambda: go.wait(FAR_SECONDS))
    sleeper.start()
    while sleeper.is_alive():
        sleeper.join(0.05)
    owned.close()


def polls_a_clock(owned: Any, go: threading.Event) -> None:
    over = threading.Event()
    end = time.monotonic() + FAR_SECONDS
    while not over.is_set() and time.monotonic() < end:
        interrupted_soon(go)
    owned.close()


class Settings:
    """A program's settings, which are replaced when reloaded."""

    def __init__(self, *, stop: bool) -> None:
        self.stop = stop


class Configured:
    """Has settings."""

    def __init__(self) -> None:
        self.settings = Settings(stop=False)

    def reload(self) -> None:
        """Take others."""
        self.settings = Settings(stop=True)

    def store(self) -> None:
        """Far from where it is called."""
        self.reload()

    def apply(self) -> None:
        """Farther."""
        self.store()

    def begin(self) -> None:
        """Farthest."""
        self.apply()


class Stops(Configured):
    """Sets an event far from where it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.over = threading.Event()

    def reload(self) -> None:
        """Set it."""
        self.over.set()


def waits_for_an_event_that_is_set_far_away(owned: Any, go: threading.Event) -> None:
    stops = Stops()
    threading.Thread(target=sleeps_then_calls, args=(go, stops.begin)).start()
    stops.over.wait()
    if go.is_set():
        raise Ended
    owned.close()


def polls_settings(owned: Any, go: threading.Event) -> None:
    configured = Configured()
    while not configured.settings.stop:
        interrupted_soon(go)
    owned.close()


def polls_settings_that_are_replaced(owned: Any, go: threading.Event) -> None:
    configured = Configured()
    threading.Thread(target=sleeps_then_calls, args=(go, configured.reload)).start()
    while not configured.settings.stop:
        interrupted_soon(go)
    owned.close()


def polls_settings_that_are_replaced_far_away(owned: Any, go: threading.Event) -> None:
    configured = Configured()
    threading.Thread(target=sleeps_then_calls, args=(go, configured.begin)).start()
    while not configured.settings.stop:
        interrupted_soon(go)
    owned.close()


def polls_a_module(owned: Any, go: threading.Event) -> None:
    polled_module.runs(owned, lambda: interrupted_soon(go))


def sets_a_module(go: threading.Event) -> None:
    go.wait(FAR_SECONDS)
    polled_module.RUNNING = False


def polls_a_module_that_another_sets(owned: Any, go: threading.Event) -> None:
    setter = threading.Thread(target=sets_a_module, args=(go,))
    setter.start()
    try:
        polls_a_module(owned, go)
    finally:
        setter.join()
        polled_module.RUNNING = True


def sets_what_a_module_has(go: threading.Event) -> None:
    go.wait(FAR_SECONDS)
    polled_module.SETTINGS.stop = True


def polls_what_a_module_has(owned: Any, go: threading.Event) -> None:
    polled_module.runs_by_settings(owned, lambda: interrupted_soon(go))


def polls_what_a_module_has_that_another_sets(owned: Any, go: threading.Event) -> None:
    setter = threading.Thread(target=sets_what_a_module_has, args=(go,))
    setter.start()
    try:
        polls_what_a_module_has(owned, go)
    finally:
        setter.join()
        polled_module.SETTINGS.stop = False


class Signal(threading.Event):
    """An event of the application's own class."""


def polls_an_event_of_its_own_class(owned: Any, go: threading.Event) -> None:
    over = Signal()
    while not over.is_set():
        interrupted_soon(go)
    owned.close()


def polls_an_event_of_its_own_class_that_is_set_later(owned: Any, go: threading.Event) -> None:
    over = Signal()
    threading.Thread(target=sleeps_then_calls, args=(go, over.set)).start()
    while not over.is_set():
        interrupted_soon(go)
    owned.close()


def polls_an_attribute_that_a_timer_sets_by_name(owned: Any, go: threading.Event) -> None:
    looping = Looping(owned, go)
    timer = threading.Timer(FAR_SECONDS, setattr, (looping, "running", False))
    timer.start()
    try:
        looping.by_attribute()
    finally:
        timer.cancel()


def polls_an_item_that_a_timer_updates(owned: Any, go: threading.Event) -> None:
    flags = {"stop": False}
    timer = threading.Timer(FAR_SECONDS, flags.update, ({"stop": True},))
    timer.start()
    try:
        while not flags["stop"]:
            interrupted_soon(go)
        owned.close()
    finally:
        timer.cancel()


def closes_by_a_global(owned: Any, go: threading.Event) -> None:
    polled_module.CHANNEL = owned
    try:
        polled_module.closes_when(go, FAR_SECONDS, Ended)
    finally:
        polled_module.CHANNEL = None


def counts_by_a_global(owned: Any, go: threading.Event) -> None:
    polled_module.CHANNEL = owned
    try:
        polled_module.counts_when(go, FAR_SECONDS, Ended)
    finally:
        polled_module.CHANNEL = None


GET_THERE: list[Holder] = [
    polls_an_event_that_is_set_later, polls_an_attribute_that_is_set_later, polls_a_property_that_a_timer_changes,
    polls_what_its_rounds_set, polls_a_variable_that_a_timer_sets, polls_an_item_that_is_set_later, polls_who_sleeps,
    polls_a_clock, polls_what_is_set_already, polls_a_state_that_is_reached,
    waits_for_an_event_that_is_set_far_away, polls_settings_that_are_replaced,
    polls_settings_that_are_replaced_far_away, polls_a_module_that_another_sets,
    polls_what_a_module_has_that_another_sets, polls_an_event_of_its_own_class_that_is_set_later,
    polls_an_attribute_that_a_timer_sets_by_name, polls_an_item_that_a_timer_updates, closes_by_a_global,
]  # fmt: skip
DO_NOT: list[Holder] = [
    polls_an_event, polls_an_attribute, polls_a_state, polls_a_property, polls_a_method, polls_an_item, polls_a_variable,
    polls_who_never_ends, returns_from_a_poll, polls_settings, polls_a_module, polls_what_a_module_has,
    polls_an_event_of_its_own_class, counts_by_a_global,
]  # fmt: skip


@pytest.mark.parametrize(
    ("holder", "expected"),
    [*((one, True) for one in GET_THERE), *((one, False) for one in DO_NOT)],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_whether_code_after_a_loop_may_close_the_channel(
    alone: Callable[..., Agent], stuck: Stuck, holder: Holder, expected: bool
) -> None:
    assert may_close_the_channel(alone, stuck, holder) is expected
