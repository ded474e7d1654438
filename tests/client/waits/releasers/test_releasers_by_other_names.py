"""A party that releases another's lock is a way out, whatever names it uses and however it reaches the lock."""

from __future__ import annotations

import contextvars
import functools
import gc
import selectors
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from multiprocessing.pool import ThreadPool
from operator import methodcaller
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from tests.client.look.worlds import look_at, of
from tests.client.waits.conftest import PATIENCE_SECONDS, Front
from tests.client.waits.releasers.releasing import FAR_SECONDS, Beside, Besides, hold, is_way_out

MANY = 3_000
BESIDES = Besides()
_VARIABLE: contextvars.ContextVar[Any] = contextvars.ContextVar("lock")
_REGISTRY: dict[str, Any] = {}


@BESIDES.gives_back
def by_its_old_name(lock: Any, go: threading.Event) -> None:
    go.wait(FAR_SECONDS)
    lock.release_lock()


@BESIDES.gives_back
def by_text(lock: Any, go: threading.Event) -> None:
    go.wait(FAR_SECONDS)
    getattr(lock, "release")()  # noqa: B009


@BESIDES.gives_back
def by_text_from_a_table(lock: Any, go: threading.Event) -> None:
    table = {"open": "release", "state": "locked"}
    go.wait(FAR_SECONDS)
    getattr(lock, table["open"])()


@BESIDES.gives_back
def by_methodcaller(lock: Any, go: threading.Event) -> None:
    free = methodcaller("release")
    go.wait(FAR_SECONDS)
    free(lock)


@BESIDES.gives_back
def by_code_that_nobody_has_read(lock: Any, go: threading.Event) -> None:
    go.wait(FAR_SECONDS)
    eval("lock.release()", {"lock": lock})


class _Visitor:
    def __init__(self, lock: Any) -> None:
        self.lock = lock

    def visit(self, what: str) -> None:
        getattr(self, f"visit_{what}")()

    def visit_lease(self) -> None:
        self.lock.release()


@BESIDES.gives_back
def by_a_method_whose_name_is_computed(lock: Any, go: threading.Event) -> None:
    visitor, what = _Visitor(lock), "lease"
    go.wait(FAR_SECONDS)
    visitor.visit(what)


@functools.singledispatch
def _handle(event: object, lock: Any) -> None:
    del event, lock


@_handle.register
def _expired(event: int, lock: Any) -> None:
    del event
    lock.release()


@BESIDES.gives_back
def by_what_is_chosen_by_type(lock: Any, go: threading.Event) -> None:
    go.wait(FAR_SECONDS)
    _handle(1, lock)


@BESIDES.gives_back
def by_a_method_that_an_object_was_given(lock: Any, go: threading.Event) -> None:
    job = SimpleNamespace(on_end=lock.release)
    del lock
    go.wait(FAR_SECONDS)
    job.on_end()


@BESIDES.gives_back
def by_a_partial_in_a_partial(lock: Any, go: threading.Event) -> None:
    act = functools.partial(functools.partial(lock.release))
    del lock
    go.wait(FAR_SECONDS)
    act()


@BESIDES.gives_back
def by_an_exit_stack(lock: Any, go: threading.Event) -> None:
    job = SimpleNamespace(stack=ExitStack())
    job.stack.callback(lock.release)
    del lock
    go.wait(FAR_SECONDS)
    job.stack.close()


@BESIDES.gives_back
def by_what_a_selector_has(lock: Any, go: threading.Event) -> None:
    loop = SimpleNamespace(keys=[selectors.SelectorKey(None, 0, 0, lock.release)])  # type: ignore[arg-type]
    del lock
    go.wait(FAR_SECONDS)
    for key in loop.keys:
        key.data()


@BESIDES.gives_back
def by_a_semaphores_like(lock: Any, go: threading.Event) -> None:
    limit = SimpleNamespace(give=threading.Condition(lock).release)
    del lock
    go.wait(FAR_SECONDS)
    limit.give()


@BESIDES.gives_back
def by_a_generator_that_is_told_to(lock: Any, go: threading.Event) -> None:
    def told() -> Iterator[None]:
        yield
        lock.release()

    step = told()
    next(step)
    go.wait(FAR_SECONDS)
    next(step, None)


_TABLE: dict[str, Callable[[], object]] = {"free": lambda: [lock.release() for lock in _REGISTRY.values()]}


@BESIDES.gives_back
def by_a_table_of_functions(lock: Any, go: threading.Event) -> None:
    _REGISTRY["the lock"] = lock
    del lock
    go.wait(FAR_SECONDS)
    _TABLE["free"]()


class _Holds(threading.Thread):
    def __init__(self, lock: Any) -> None:
        super().__init__(daemon=True)
        self.guard = lock


@BESIDES.gives_back
def out_of_a_threads_attribute(lock: Any, go: threading.Event) -> None:
    workers = SimpleNamespace(all=[_Holds(lock)])
    del lock
    go.wait(FAR_SECONDS)
    for one in workers.all:
        one.guard.release()


class _Guards:
    held: ClassVar[list[Any]] = []

    def free(self) -> None:
        for lock in self.held:
            lock.release()


@BESIDES.gives_back
def out_of_a_classs_attribute(lock: Any, go: threading.Event) -> None:
    guards = _Guards()
    _Guards.held[:] = [lock]
    del lock
    go.wait(FAR_SECONDS)
    guards.free()


def _guard() -> None:
    pass


@BESIDES.gives_back
def out_of_a_functions_attribute(lock: Any, go: threading.Event) -> None:
    _guard.locks = [lock]  # type: ignore[attr-defined]
    del lock
    go.wait(FAR_SECONDS)
    for one in _guard.locks:  # type: ignore[attr-defined]
        one.release()


@BESIDES.gives_back
def out_of_many(lock: Any, go: threading.Event) -> None:
    store = SimpleNamespace(locks={one: threading.Lock() for one in range(MANY)} | {MANY: lock})
    del lock
    go.wait(FAR_SECONDS)
    for one in store.locks.values():
        if one.locked():
            one.release()


@BESIDES.gives_back
def out_of_many_sessions(lock: Any, go: threading.Event) -> None:
    store = SimpleNamespace(sessions=[SimpleNamespace(lock=threading.Lock()) for _ in range(MANY)])
    store.sessions.append(SimpleNamespace(lock=lock))
    del lock
    go.wait(FAR_SECONDS)
    for one in store.sessions:
        if one.lock.locked():
            one.lock.release()


@BESIDES.gives_back
def out_of_a_context(lock: Any, go: threading.Event) -> None:
    def later() -> None:
        go.wait(FAR_SECONDS)
        _VARIABLE.get().release()

    context = contextvars.copy_context()
    context.run(_VARIABLE.set, lock)
    del lock
    context.run(later)


@BESIDES.gives_back
def out_of_what_the_collector_knows(lock: Any, go: threading.Event) -> None:
    del lock
    go.wait(FAR_SECONDS)
    for thing in gc.get_objects():
        if type(thing) is dict and "the lock" in thing:
            thing["the lock"].release()


@BESIDES.gives_back
def out_of_the_modules_names(lock: Any, go: threading.Event) -> None:
    del lock
    name = "_REGISTRY"
    go.wait(FAR_SECONDS)
    for one in globals()[name].values():
        one.release()


@BESIDES.does_not
def asks_by_text(lock: Any, go: threading.Event) -> None:
    go.wait(FAR_SECONDS)
    getattr(lock, "locked")()  # noqa: B009


@BESIDES.does_not
def waits_for_a_condition_of_another_lock(lock: Any, go: threading.Event) -> None:
    other = threading.Condition()
    del lock
    go.wait(FAR_SECONDS)
    with other:
        other.notify()


@BESIDES.does_not
def has_a_condition_of_this_lock(lock: Any, go: threading.Event) -> None:
    box = SimpleNamespace(condition=threading.Condition(lock))
    del lock
    go.wait(FAR_SECONDS)
    assert box


@BESIDES.does_not
def releases_one_of_many_others(lock: Any, go: threading.Event) -> None:
    store = SimpleNamespace(locks=[threading.Lock() for _ in range(MANY)])
    del lock
    go.wait(FAR_SECONDS)
    for one in store.locks:
        if one.locked():
            one.release()


@pytest.mark.parametrize("beside", [*BESIDES.releasing, *BESIDES.harmless], ids=lambda one: one.__name__)
def test_a_release_by_any_name_is_found(front: Front, beside: Beside) -> None:
    lock = threading.Lock()
    _REGISTRY["the lock"] = lock if beside is out_of_the_modules_names else threading.Lock()
    found = is_way_out(front, beside, lock)
    _guard.__dict__.clear()
    _Guards.held.clear()
    assert found is (beside in BESIDES.releasing)


@pytest.fixture
def reaped(request: pytest.FixtureRequest) -> Iterator[list[Any]]:
    """The lock that a signal handler releases."""
    locks: list[Any] = []

    def handler(*_: object) -> None:
        for lock in locks:
            lock.release()

    before = signal.signal(request.param, handler)
    yield locks
    signal.signal(request.param, before)


@pytest.mark.skipif(sys.platform == "win32", reason="this system has no such signals")
@pytest.mark.parametrize(("reaped", "counts"), [(signal.SIGCHLD, True), (signal.SIGTERM, False)], indirect=["reaped"])
def test_a_callback_on_a_childs_end_is_a_way_out(front: Front, reaped: list[Any], counts: bool) -> None:
    lock = threading.Lock()
    reaped.append(lock)
    hold(front, lock)
    report = front.report_when_still("waiter", "holder")
    look = of(look_at(front.agent, report), "front/thread:waiter")
    front.let_go()
    assert any("SIGCHLD" in way.text for way in look.ways_out) is counts


@pytest.mark.parametrize("releases", [True, False])
def test_a_thread_pools_result_callback_is_a_way_out(front: Front, releases: bool) -> None:
    lock, go = threading.Lock(), threading.Event()

    def done(_: object) -> None:
        with suppress(RuntimeError):
            lock.release()

    def only_counts(_: object) -> None:
        assert lock is not None

    hold(front, lock)
    with ThreadPool(1) as pool:
        result = pool.apply_async(go.wait, (FAR_SECONDS,), callback=done if releases else only_counts)
        report = front.report_when_still("waiter", "holder")
        look = of(look_at(front.agent, report), "front/thread:waiter")
        go.set()
        result.wait(PATIENCE_SECONDS)
        front.let_go()
    assert bool(look.ways_out) is releases
