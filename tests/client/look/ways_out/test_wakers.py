"""Who sets the event that another party waits for before it cancels is a way out, however the code gets to the event."""

from __future__ import annotations

import contextlib
import enum
import functools
import json
import sched
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stilltrue import Agent
from tests.client.look.worlds import Stuck, look_at_caller

member: Any = getattr(enum, "member", lambda one: one)  # Python 3.13 makes a method of a partial
FAR_SECONDS = 60.0


class Gate:
    def __init__(self) -> None:
        self.opened = threading.Event()
        self.calls: list[Any] = []


_GATES: list[Gate] = []
_ACTS: dict[str, Any] = {}
Do: Any = None
Look: Any = None
Numbered: Any = None


def gate() -> Gate:
    return _GATES[-1]


class Opener:
    def __init__(self) -> None:
        self.gate = gate()

    def open(self) -> None:
        self.gate.opened.set()

    def look(self) -> bool:
        return self.gate.opened.is_set()


def opener() -> Opener:
    return Opener()


class Settings:
    @property
    def opened(self) -> bool:
        return gate().opened.is_set()

    @opened.setter
    def opened(self, value: bool) -> None:
        gate().opened.set()


settings = Settings()


def acts() -> None:
    own = gate()
    own.opened.wait()
    for call in own.calls:
        call.cancel()


def by_an_object_made_then(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        opener().open()


def by_a_method_named_by_text(over: threading.Event) -> None:
    for verb in ("is_set", "set"):
        if not over.wait(FAR_SECONDS):
            getattr(gate().opened, verb)()


def by_a_property_set_by_text(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        for name, value in json.loads("{}").items():
            setattr(settings, name, value)


def by_an_event_of_a_scheduler(over: threading.Event) -> None:
    scheduler = sched.scheduler(delayfunc=over.wait)
    scheduler.enter(FAR_SECONDS, 1, gate().opened.set)
    _runs(scheduler, over)


class Opening(sched.scheduler):
    """Of the program's own, with a method that it will call."""

    def opens(self) -> None:
        gate().opened.set()


class OverError(Exception):
    """The test is over."""


def by_a_method_of_its_own_scheduler(over: threading.Event) -> None:
    def waits(seconds: float) -> None:
        if over.wait(seconds):
            raise OverError

    scheduler = Opening(delayfunc=waits)
    scheduler.enter(FAR_SECONDS, 1, scheduler.opens)
    with contextlib.suppress(OverError):
        scheduler.run()


def by_a_function_in_a_table(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        _ACTS["open"]()


def by_an_item_of_an_enum(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        Do["OPEN"].value()


def by_a_member_of_an_enum(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        Do.OPEN.value()


def by_a_member_with_that_value(over: threading.Event) -> None:
    for one in (2, 1):
        if not over.wait(FAR_SECONDS):
            Numbered(one).act()


def by_each_member_of_an_enum(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        for one in Do:
            one.value()


def by_a_member_in_a_function(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        does("OPEN")


def does(name: str) -> None:
    Do[name].value()


def looks_at_it(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        opener().look()


def looks_by_a_member_of_an_enum(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        Look["OPENED"].value()


def _runs(scheduler: sched.scheduler, over: threading.Event) -> None:
    while not over.is_set() and scheduler.queue:
        scheduler.run(blocking=False)
        over.wait(FAR_SECONDS)


SETTING = (
    by_an_object_made_then,
    by_a_method_named_by_text,
    by_a_property_set_by_text,
    by_an_event_of_a_scheduler,
    by_a_method_of_its_own_scheduler,
    by_a_function_in_a_table,
    by_an_item_of_an_enum,
    by_a_member_of_an_enum,
    by_a_member_with_that_value,
    by_each_member_of_an_enum,
    by_a_member_in_a_function,
)
LOOKING = (looks_at_it, looks_by_a_member_of_an_enum)


@pytest.fixture
def over() -> Iterator[threading.Event]:
    over = threading.Event()
    _GATES.append(Gate())
    _enums_of(gate().opened)
    yield over
    over.set()
    _GATES.clear()
    _enums_of(threading.Event())


def _enums_of(opened: threading.Event) -> None:
    global Do, Look, Numbered

    class Doing(enum.Enum):
        OPEN = member(functools.partial(opened.set))

    class Looking(enum.Enum):
        OPENED = member(functools.partial(opened.is_set))

    class ByNumber(enum.Enum):
        LOOK = 1, functools.partial(opened.is_set)
        OPEN = 2, functools.partial(opened.set)

        def __new__(cls, number: int, act: Any) -> Any:
            one = object.__new__(cls)
            one._value_ = number
            one.act = act  # type: ignore[attr-defined]
            return one

    Do, Look, Numbered = Doing, Looking, ByNumber
    _ACTS["open"] = opened.set


@pytest.mark.parametrize("beside", [*SETTING, *LOOKING], ids=lambda one: one.__name__)
def test_who_sets_the_event_after_which_another_cancels_is_a_way_out(
    alone: Callable[..., Agent], stuck: Stuck, over: threading.Event, beside: Any
) -> None:
    def caller(get: Any) -> None:
        call = get.future(b"")
        gate().calls.append(call)
        call.result()

    threads = [threading.Thread(target=beside, args=(over,)), threading.Thread(target=acts)]
    for thread in threads:
        thread.start()
    seen = look_at_caller(alone, stuck, caller)
    over.set()
    gate().calls.clear()
    gate().opened.set()
    for thread in threads:
        thread.join()
    assert bool(seen.ways_out) is (beside in SETTING), seen.ways_out
