"""A thread that calls something keeps what it will call next, and its arguments, on its frame's stack: it alone has these."""

from __future__ import annotations

import contextlib
import contextvars
import ctypes
import functools
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from stilltrue import Agent
from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import frames_of_threads
from stilltrue.runtime.own_ref import OwnRef
from stilltrue.runtime.waits.reachability import simple_queues
from stilltrue.runtime.waits.reachability.awaited_objects import awaited_in
from stilltrue.runtime.waits.reachability.simple_queues import queue_awaited
from tests.client.look.worlds import look_at
from tests.client.waits.test_thread_waits import (
    FAR_SECONDS,
    PATIENCE_SECONDS,
    Threads,
    _there,
    awaited,
    needs_memory,
    reaching,
    reported,
    threads,
    until_all_wait,
)

__all__ = ["threads"]
pytestmark = pytest.mark.usefixtures("only_this_file_counts")


class _Mailbox:
    """Its queue is reached through it alone."""

    def __init__(self, todo: Any) -> None:
        self.todo = todo

    def handle(self, *_: Any, **__: Any) -> Any:
        """Take an item."""

    def run(self) -> None:
        self.handle(self.todo.get())

    def among_others(self) -> None:
        with contextlib.suppress(KeyError):
            self.handle([], [(one, self.handle(len("a"), self.todo.get(), more=1)) for one in ("a", "b")])

    def by_name(self) -> None:
        with contextlib.suppress(KeyError), contextlib.suppress(ValueError):
            self.handle(first=self.handle, second=self.todo.get())


@needs_memory
@pytest.mark.parametrize("run", [_Mailbox.run, _Mailbox.among_others, _Mailbox.by_name], ids=lambda one: one.__name__)
def test_a_frame_keeps_what_it_will_call_on_its_stack(run: Callable[[_Mailbox], None], threads: Threads) -> None:
    todo = queue.Queue[Any]()
    things, thing = [_Mailbox(todo)], OwnRef(todo)
    threads.begin("other", lambda: run(things.pop()))
    threads.ends.append(lambda: [_there(thing).put(None) for _ in "ab"])
    del todo
    until_all_wait("other")
    assert reaching(thing) == {"other"}


class _Taking(_Mailbox):
    """It takes its item in a method that is called in various ways."""

    def take(self, *_: Any, **__: Any) -> Any:
        return self.todo.get()

    @property
    def item(self) -> Any:
        return self.todo.get()

    def __getitem__(self, _: int) -> Any:
        return self.todo.get()

    def __enter__(self) -> None:
        """Take nothing."""

    def __exit__(self, *_: object) -> bool:
        self.todo.get()
        return True


def _logged(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        return function(*arguments, **options)

    return call


def _by_decorator(things: list[_Taking]) -> None:
    _logged(_Taking.take)(things.pop(), 1, more=2)


def _by_bound_method(things: list[_Taking]) -> None:
    call = _logged(things.pop().take)
    call(1)


def _with_options(things: list[_Taking]) -> None:
    _logged(things.pop().take)(1, more=things)


def _as_option(things: list[_Taking]) -> None:
    _logged(lambda **options: options["one"].take())(one=things.pop())


def _by_partial(things: list[_Taking]) -> None:
    functools.partial(_Taking.take, things.pop(), 1)()


def _by_property(things: list[_Taking]) -> None:
    assert things.pop().item is None


def _by_item(things: list[_Taking]) -> None:
    assert things.pop()[0] is None


class _Entered(_Taking):
    """It takes an item while its block is entered."""

    def __enter__(self) -> None:
        self.todo.get()

    def __exit__(self, *_: object) -> bool:
        return True


def _by_entering(things: list[_Taking]) -> None:
    with _Entered(things.pop().todo):
        pass


class _Made:
    """It takes an item while it is made."""

    def __init__(self, taking: _Taking, *_: Any) -> None:
        self.taking = taking
        taking.take()


def _by_constructor(things: list[_Taking]) -> None:
    _Made(things.pop(), 1)


def _at_exit(things: list[_Taking]) -> None:
    with things.pop():
        pass


def _at_exit_by_error(things: list[_Taking]) -> None:
    with things.pop():
        raise ValueError("a failing block")


def _at_exit_of_named(things: list[_Taking]) -> None:
    taking = things.pop()
    with taking:
        pass


@needs_memory
@pytest.mark.parametrize(
    "run",
    [
        _by_decorator,
        _by_bound_method,
        _with_options,
        _as_option,
        _by_partial,
        _by_constructor,
        _by_entering,
        _by_property,
        _by_item,
        _at_exit,
        _at_exit_by_error,
        _at_exit_of_named,
    ],
    ids=lambda one: one.__name__,
)
def test_a_frame_keeps_what_it_calls_if_that_does_not_take_it_over(
    run: Callable[[list[_Taking]], None], threads: Threads
) -> None:
    todo = queue.Queue[Any]()
    things, thing = [_Taking(todo)], OwnRef(todo)
    threads.begin("other", run, things)
    threads.ends.append(lambda: _there(thing).put(None))
    del todo
    until_all_wait("other")
    assert reaching(thing) in ({"other"}, set())  # since 3.12 a function takes over what the caller never reads again


@needs_memory
@pytest.mark.parametrize(
    "run", [_by_decorator, _with_options, _as_option, _by_constructor, _by_entering, _at_exit], ids=lambda one: one.__name__
)
def test_another_holder_of_what_a_frame_calls_can_end_the_wait(run: Callable[[list[_Taking]], None], threads: Threads) -> None:
    """Near miss: the values on the stack do not stand for those of another holder, known or not."""

    def begin() -> OwnRef:
        todo = queue.Queue[Any]()
        one = _Taking(todo)
        threads.begin("other", run, [one])
        threads.begin("keeper", lambda kept: (gate.wait(FAR_SECONDS), kept), [one])
        return OwnRef(todo)

    gate = threading.Event()
    thing = begin()
    threads.ends += [lambda: _there(thing).put(None), gate.set]
    until_all_wait("other")
    assert "keeper" in (reaching(thing) or ())
    unknown = ctypes.py_object(_there(thing))
    assert reaching(thing) is None
    del unknown


@needs_memory
def test_who_keeps_the_method_by_which_a_block_is_entered_can_end_the_wait(threads: Threads) -> None:
    """Near miss: the interpreter keeps the method while it runs, and so does somebody else."""

    def enter(entered: _Entered) -> None:
        with entered:
            pass

    def begin(kept: list[Any]) -> OwnRef:
        entered = _Entered(queue.Queue[Any]())
        kept.append(entered.__enter__)
        threads.begin("other", enter, entered)
        return OwnRef(entered.todo)

    kept: list[Any] = []
    gate = threading.Event()
    threads.begin("keeper", lambda kept: (gate.wait(FAR_SECONDS), kept), kept)
    thing = begin(kept)
    del kept
    threads.ends += [lambda: _there(thing).put(None), gate.set]
    until_all_wait("other", "keeper")
    assert reaching(thing) is None or "keeper" in (reaching(thing) or ())


def _with_a_list(things: list[_Taking]) -> None:
    items = [things.pop().take]
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(items))
    try:
        _logged(items[0])(*items)
    finally:
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(items))


@needs_memory
def test_a_list_of_arguments_that_became_a_tuple_is_not_kept(threads: Threads) -> None:
    """Near miss: the place on the stack still shows the list, and does not stand for an unknown holder's reference."""
    todo = queue.Queue[Any]()
    things, thing = [_Taking(todo)], OwnRef(todo)
    threads.begin("other", _with_a_list, things)
    threads.ends.append(lambda: _there(thing).put(None))
    del todo
    until_all_wait("other")
    assert reaching(thing) is None


# -- SimpleQueue -----------------------------------------------------------------------------------------------------------


def until_all_get(*names: str) -> None:
    """Wait until the threads with these names wait for an item of a ``SimpleQueue``."""
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        idents = {one.name: one.ident for one in compat.threads().values()}
        every = frames_of_threads()
        frames = [every.get(idents.get(name) or 0, []) for name in names]
        if all(one and queue_awaited(one[0]) is not None for one in frames):
            return
        time.sleep(0.01)
    raise AssertionError(f"{names} do not wait")


def _get(todo: Any) -> None:
    while todo.get() is not None:
        pass


def _by_method(todo: Any) -> None:
    get = todo.get
    del todo
    while get() is not None:
        pass


def _iterate(todo: Any) -> None:
    for _ in iter(todo.get, None):
        pass


def _handle(todo: Any) -> None:
    _Mailbox(todo).run()


@needs_memory
@pytest.mark.parametrize("work", [_get, _by_method, _iterate, _handle], ids=lambda one: one.__name__)
def test_a_worker_at_a_simple_queue_that_is_joined_is_reported(
    work: Callable[[Any], None], alone: Callable[..., Agent], threads: Threads
) -> None:
    """A published bug: there is one sentinel for two workers."""

    def run() -> None:
        todo = queue.SimpleQueue[Any]()
        things.append(OwnRef(todo))
        workers = [threads.begin(name, work, todo) for name in ("a", "b")]
        del todo
        for worker in workers:
            worker.join()

    things: list[OwnRef] = []
    threads.begin("main", run)
    threads.ends.append(lambda: [_there(things[0]).put(None) for _ in "ab"])
    until_all_get("a", "b")
    agent = alone("one")
    report = reported(agent, "a", "b")
    assert awaited(report)["a"] == {"b"}
    looks = [one for one in look_at(agent, report).parties if one.party.endswith((":a", ":b"))]
    assert [(one.unchanged, one.ways_out, one.doubt) for one in looks] == [(True, (), "")] * 2


def _feeds(todo: Any, gate: threading.Event) -> None:
    gate.wait()
    todo.put(None)


def _puts(put: Any, gate: threading.Event) -> None:
    gate.wait()
    put(None)


@needs_memory
@pytest.mark.parametrize("by_method", [False, True])
def test_who_may_feed_a_simple_queue_can_end_the_wait(by_method: bool, threads: Threads) -> None:
    todo, gate = queue.SimpleQueue[Any](), threading.Event()
    thing = OwnRef(todo)
    things = [todo]
    threads.begin("other", lambda: _get(things.pop()))
    if by_method:
        threads.begin("feeder", _puts, todo.put, gate)
    else:
        threads.begin("feeder", _feeds, todo, gate)
    threads.ends.append(gate.set)
    del todo
    until_all_get("other")
    until_all_wait("feeder")
    assert reaching(thing) == {"other", "feeder"}


def _with_limit(todo: Any) -> None:
    with contextlib.suppress(queue.Empty):
        todo.get(timeout=FAR_SECONDS)


def _with_limit_by_place(todo: Any) -> None:
    with contextlib.suppress(queue.Empty):
        todo.get(True, FAR_SECONDS)


@needs_memory
@pytest.mark.parametrize("work", [_with_limit, _with_limit_by_place], ids=lambda one: one.__name__)
def test_a_get_with_a_timeout_is_not_a_wait(work: Callable[[Any], None], threads: Threads) -> None:
    todo = queue.SimpleQueue[Any]()
    worker = threads.begin("other", work, todo)
    threads.ends.append(lambda: todo.put(None))
    time.sleep(0.1)
    assert queue_awaited(frames_of_threads()[worker.ident or 0][0]) is None


def test_a_queue_with_an_item_is_not_waited_for() -> None:
    todo = queue.SimpleQueue[Any]()
    assert simple_queues._queue_of(todo.get) is todo
    todo.put(None)
    assert simple_queues._queue_of(todo.get) is None


def _in_a_thread(todo: Any, threads: Threads) -> None:
    threads.begin("other", todo.get)


def _in_an_executor(todo: Any, threads: Threads) -> None:
    ThreadPoolExecutor(1, thread_name_prefix="other").submit(todo.get)


def _in_a_context(todo: Any, threads: Threads) -> None:
    call = functools.partial(contextvars.copy_context().run, todo.get)  # as asyncio.to_thread does
    ThreadPoolExecutor(1, thread_name_prefix="other").submit(call)


@needs_memory
@pytest.mark.parametrize("begin", [_in_a_thread, _in_an_executor, _in_a_context], ids=lambda one: one.__name__)
def test_a_wait_that_a_thread_or_an_executor_was_given_to_run_counts(
    begin: Callable[[Any, Threads], None], threads: Threads
) -> None:
    todo = queue.Queue[Any]()
    thing = OwnRef(todo)
    begin(todo, threads)
    threads.ends.append(lambda: _there(thing).put(None))
    del todo
    name = "other" if begin is _in_a_thread else "other_0"
    until_all_wait(name)
    ident = next(one.ident for one in compat.threads().values() if one.name == name)
    awaited_there = awaited_in(ident or 0, frames_of_threads()[ident or 0])
    assert awaited_there is not None
    assert awaited_there.thing is thing()
    del awaited_there
    assert reaching(thing) == {name}
