"""A holder that cancels or closes by a computed name, an operator or a function kept somewhere is a way out."""

from __future__ import annotations

import contextlib
import functools
import operator
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from stilltrue import Agent
from tests.client.look.ways_out.closing import may_close_the_channel
from tests.client.look.worlds import Stuck, look_at_caller

FAR_SECONDS = 60.0
_CALLS: dict[int, Any] = {}


class Newest(dict[int, Any]):
    """Cancels the call that another replaces."""

    def __setitem__(self, key: int, call: Any) -> None:
        self[key].cancel()
        super().__setitem__(key, call)


class Counted(dict[int, Any]):
    """Only counts."""

    def __setitem__(self, key: int, call: Any) -> None:
        super().__setitem__(len(self) + key, call)


class Drops:
    """Cancels what it is called with."""

    def __call__(self, call: Any) -> None:
        call.cancel()


class Asks:
    """Only asks."""

    def __call__(self, call: Any) -> None:
        call.done()


def drop(call: Any) -> None:
    call.cancel()


def ask(call: Any) -> None:
    call.done()


_UNDO = operator.methodcaller("cancel")
_ASK = operator.methodcaller("done")
_ACTIONS = {"drop": drop}
_QUESTIONS = {"ask": ask}
_POLICY = SimpleNamespace(each=drop, whole=Drops())
_SURVEY = SimpleNamespace(each=ask, whole=Asks())
_NEWEST, _COUNTED = Newest(), Counted()


def by_a_name_it_was_given(over: threading.Event, name: str) -> None:
    if over.wait(FAR_SECONDS):
        return
    for call in _CALLS.values():
        getattr(call, name)()


def by_a_name_that_it_puts_together(over: threading.Event, name: str) -> None:
    if over.wait(FAR_SECONDS):
        return
    for call in _CALLS.values():
        getattr(call, "".join(name))()


def by_a_caller_whose_name_it_puts_together(over: threading.Event, name: str) -> None:
    if over.wait(FAR_SECONDS):
        return
    for call in _CALLS.values():
        operator.methodcaller("".join(name))(call)


def by_a_caller_it_was_given(over: threading.Event, act: Callable[[Any], object]) -> None:
    if over.wait(FAR_SECONDS):
        return
    for call in _CALLS.values():
        act(call)


def by_a_caller_of_its_module(over: threading.Event, name: str) -> None:
    if over.wait(FAR_SECONDS):
        return
    for call in _CALLS.values():
        _UNDO(call) if name else None


def by_another_caller_of_its_module(over: threading.Event, name: str) -> None:
    if over.wait(FAR_SECONDS):
        return
    for call in _CALLS.values():
        _ASK(call) if name else None


def by_a_table(over: threading.Event, name: str) -> None:
    if over.wait(FAR_SECONDS):
        return
    for call in _CALLS.values():
        _ACTIONS[name](call)


def by_a_table_of_questions(over: threading.Event, name: str) -> None:
    if over.wait(FAR_SECONDS):
        return
    for call in _CALLS.values():
        _QUESTIONS[name](call)


def by_a_function_that_an_object_has(over: threading.Event, name: str) -> None:
    if over.wait(FAR_SECONDS):
        return
    for call in _CALLS.values():
        _POLICY.each(call) if name else None


def by_a_question_that_an_object_has(over: threading.Event, name: str) -> None:
    if over.wait(FAR_SECONDS):
        return
    for call in _CALLS.values():
        _SURVEY.each(call) if name else None


def by_an_object_that_is_called(over: threading.Event, name: str) -> None:
    if over.wait(FAR_SECONDS):
        return
    for call in _CALLS.values():
        _POLICY.whole(call) if name else None


def by_an_object_that_only_asks(over: threading.Event, name: str) -> None:
    if over.wait(FAR_SECONDS):
        return
    for call in _CALLS.values():
        _SURVEY.whole(call) if name else None


def by_an_item(over: threading.Event, value: Any) -> None:
    if over.wait(FAR_SECONDS):
        return
    _NEWEST[0] = value


def by_an_item_that_is_counted(over: threading.Event, value: Any) -> None:
    if over.wait(FAR_SECONDS):
        return
    _COUNTED[0] = value


def by_a_function_it_calls(over: threading.Event, name: str) -> None:
    if not over.wait(FAR_SECONDS):
        by_a_table(over, name)


_CANCEL: list[tuple[Callable[..., None], Any]] = [
    (by_a_name_it_was_given, "cancel"), (by_a_caller_it_was_given, operator.methodcaller("cancel")),
    (by_a_caller_of_its_module, "x"), (by_a_table, "drop"), (by_a_function_that_an_object_has, "x"),
    (by_an_object_that_is_called, "x"), (by_an_item, None), (by_a_function_it_calls, "drop"),
    (by_a_name_that_it_puts_together, "cancel"), (by_a_caller_whose_name_it_puts_together, "cancel"),
]  # fmt: skip
_ONLY_ASK: list[tuple[Callable[..., None], Any]] = [
    (by_a_name_it_was_given, "done"), (by_a_caller_it_was_given, operator.methodcaller("done")),
    (by_another_caller_of_its_module, "x"), (by_a_table_of_questions, "ask"), (by_a_question_that_an_object_has, "x"),
    (by_an_object_that_only_asks, "x"), (by_an_item_that_is_counted, None),
]  # fmt: skip


@pytest.fixture
def over() -> Iterator[threading.Event]:
    over = threading.Event()
    yield over
    over.set()
    for one in (_CALLS, _NEWEST, _COUNTED):
        dict.clear(one)


@pytest.mark.parametrize(
    ("sweep", "argument", "expected"), [*((*one, True) for one in _CANCEL), *((*one, False) for one in _ONLY_ASK)]
)
def test_who_cancels_without_naming_it_is_a_way_out(
    alone: Callable[..., Agent], stuck: Stuck, over: threading.Event, sweep: Callable[..., None], argument: Any, expected: bool
) -> None:
    def caller(get: Any) -> None:
        call = get.future(b"")
        for one in (_CALLS, _NEWEST, _COUNTED):
            dict.__setitem__(one, 0, call)
        del one
        call.result()

    thread = threading.Thread(target=sweep, args=(over, argument))
    thread.start()
    seen = look_at_caller(alone, stuck, caller)
    over.set()
    thread.join()
    assert bool(seen.ways_out) is expected, seen.ways_out


class Plan:
    """A job as schedulers keep it, with no arguments."""

    def __init__(self, function: Callable[[], None]) -> None:
        self.function = function
        self.args: tuple[Any, ...] = ()

    def run(self) -> None:
        self.function(*self.args)


def drop_all() -> None:
    for call in _CALLS.values():
        call.cancel()


def ask_all() -> None:
    for call in _CALLS.values():
        call.done()


class Runner(threading.Thread):
    """Runs what it has been given, after a while."""

    def __init__(self, over: threading.Event, jobs: list[Callable[[], None]]) -> None:
        super().__init__()
        self.finished = over  # not ``over``: a global of this module
        self.book = {"jobs": jobs}

    def run(self) -> None:
        if not self.finished.wait(FAR_SECONDS):
            for job in self.book["jobs"]:
                job()


@pytest.mark.parametrize("make", [functools.partial, lambda function: Plan(function).run], ids=["partial", "object"])
@pytest.mark.parametrize(("function", "expected"), [(drop_all, True), (ask_all, False)])
def test_who_runs_jobs_without_arguments_ends_the_globals_these_cancel(
    alone: Callable[..., Agent],
    stuck: Stuck,
    over: threading.Event,
    make: Callable[..., Any],
    function: Callable[[], None],
    expected: bool,
) -> None:
    def caller(get: Any) -> None:
        call = _CALLS[0] = get.future(b"")
        call.result()

    runner = Runner(over, [make(function)])
    runner.start()
    seen = look_at_caller(alone, stuck, caller)
    over.set()
    runner.join()
    assert bool(seen.ways_out) is expected, seen.ways_out


class Bus:
    """Calls subscribers by topic."""

    def __init__(self, function: Callable[[], None]) -> None:
        self.subscribers = {"lost": [function]}

    def emit(self, topic: str) -> None:
        for one in self.subscribers[topic]:
            one()


class State:
    """Has no method."""

    calls: ClassVar[dict[int, Any]] = {}


_LOUD, _QUIET = Bus(drop_all), Bus(ask_all)


def emits(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        _LOUD.emit("lost")


def emits_quietly(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        _QUIET.emit("lost")


def cancels_what_a_class_has(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        for call in State.calls.values():
            call.cancel()


def asks_what_a_class_has(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        for call in State.calls.values():
            call.done()


@pytest.mark.parametrize(
    ("holder", "expected"),
    [(emits, True), (emits_quietly, False), (cancels_what_a_class_has, True), (asks_what_a_class_has, False)],
)
def test_who_cancels_by_a_subscriber_or_through_a_class_is_a_way_out(
    alone: Callable[..., Agent], stuck: Stuck, over: threading.Event, holder: Callable[[threading.Event], None], expected: bool
) -> None:
    def caller(get: Any) -> None:
        call = _CALLS[0] = State.calls[0] = get.future(b"")
        call.result()

    thread = threading.Thread(target=holder, args=(over,))
    thread.start()
    seen = look_at_caller(alone, stuck, caller)
    over.set()
    thread.join()
    State.calls.clear()
    assert bool(seen.ways_out) is expected, seen.ways_out


class Ended(BaseException):
    """Interrupts a holder at the end of its test, as a signal would."""


def sleeps(go: threading.Event) -> None:
    if go.wait(FAR_SECONDS):
        raise Ended


class Evicts(OrderedDict[int, Any]):
    """Keeps the newest channel and closes the others."""

    def __setitem__(self, key: int, channel: Any) -> None:
        super().__setitem__(key, channel)
        while len(self) > 1:
            self.popitem(last=False)[1].close()


class Forgets(OrderedDict[int, Any]):
    """Keeps all channels."""

    def __setitem__(self, key: int, channel: Any) -> None:
        super().__setitem__(key, channel)
        self.move_to_end(key)


class Connection:
    """Closes its channel when it is told that it is down."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self.last = 0

    @property
    def state(self) -> str:
        return "up"

    @state.setter
    def state(self, state: str) -> None:
        if state == "down":
            self._channel.close()


def evicts(channels: Any, go: threading.Event) -> None:
    sleeps(go)
    channels[1] = None


def sets_its_state(connection: Any, go: threading.Event) -> None:
    sleeps(go)
    connection.state = "down"


def sets_another_attribute(connection: Any, go: threading.Event) -> None:
    sleeps(go)
    connection.last = 1


class Pooled:
    """Closes its channel at the end of a block."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel

    def __enter__(self) -> Pooled:
        return self

    def __exit__(self, *exception: object) -> None:
        self.channel.close()


class Leased(Pooled):
    """Keeps its channel open."""

    def __exit__(self, *exception: object) -> None:
        self.channel.subscribe(print)


def enters_the_first(pool: Any, go: threading.Event) -> None:
    sleeps(go)
    with pool[0]:
        pass


def calls_its_hooks(hooks: Any, go: threading.Event) -> None:
    sleeps(go)
    for hook in hooks:
        hook()


def runs_its_plans(plans: Any, go: threading.Event) -> None:
    sleeps(go)
    for plan in plans["daily"]:
        plan.run()


def calls_by_name(named: Any, go: threading.Event) -> None:
    sleeps(go)
    channels, name = named
    for channel in channels:
        getattr(channel, name)


def cache(kind: type[OrderedDict[int, Any]], channel: Any) -> Any:
    found = kind()
    found[0] = channel
    return found


HOLDERS: list[tuple[Callable[[Any], Any], Callable[..., None], bool]] = [
    (lambda channel: cache(Evicts, channel), evicts, True),
    (lambda channel: cache(Forgets, channel), evicts, False),
    (Connection, sets_its_state, True),
    (Connection, sets_another_attribute, False),
    (lambda channel: [Pooled(channel)], enters_the_first, True),
    (lambda channel: [Leased(channel)], enters_the_first, False),
    (lambda channel: {"daily": [Plan(channel.close)]}, runs_its_plans, True),
    (lambda channel: {"daily": [Plan(lambda: channel.unary_unary("/s/Get"))]}, runs_its_plans, False),
    (lambda channel: ([channel], "close"), calls_by_name, True),
    (lambda channel: ([channel], "unary_unary"), calls_by_name, False),
    (lambda channel: [channel.close], calls_its_hooks, True),
    (lambda channel: [channel.unary_unary], calls_its_hooks, False),
]


@pytest.mark.parametrize(("keep", "holder", "expected"), HOLDERS)
def test_who_closes_the_channel_without_naming_it_is_a_way_out(
    alone: Callable[..., Agent], stuck: Stuck, keep: Callable[[Any], Any], holder: Callable[..., None], expected: bool
) -> None:
    def holds(channel: Any, go: threading.Event) -> None:
        kept = keep(channel)
        del channel
        with contextlib.suppress(Ended):
            holder(kept, go)

    assert may_close_the_channel(alone, stuck, holds) is expected
