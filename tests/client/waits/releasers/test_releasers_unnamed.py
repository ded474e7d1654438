"""A party that releases another's lock by code that runs implicitly is a way out: classes, blocks, hooks, late imports."""

from __future__ import annotations

import gc
import sys
import threading
from code import InteractiveInterpreter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import cached_property, partialmethod
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.client.waits.conftest import Front
from tests.client.waits.releasers.releasing import FAR_SECONDS, Beside, Besides, hold, is_way_out, looked_at

_LATE = "stilltrue_test_late_module"
BESIDES = Besides()


class _Sweeper:
    """Releases the locks that are passed to it."""

    def __init__(self, locks: list[Any]) -> None:
        self.locks = locks

    def sweep(self) -> None:
        self._free()

    def _free(self) -> None:
        for lock in self.locks:
            lock.release()

    def count(self) -> int:
        return len(self.locks)


@BESIDES.gives_back
def by_an_object_that_it_makes_then(lock: Any, go: threading.Event) -> None:
    go.wait(FAR_SECONDS)
    _Sweeper([lock]).sweep()


@BESIDES.gives_back
def by_what_a_console_is_given(lock: Any, go: threading.Event) -> None:
    go.wait(FAR_SECONDS)
    InteractiveInterpreter({"lock": lock}).runsource("lock.release()")


@BESIDES.does_not
def makes_an_object_that_only_counts(lock: Any, go: threading.Event) -> None:
    go.wait(FAR_SECONDS)
    assert _Sweeper([lock]).count() == 1


class _AtOnce:
    def __init__(self, lock: Any) -> None:
        lock.release()


@BESIDES.gives_back
def by_the_making_of_an_object(lock: Any, go: threading.Event) -> None:
    go.wait(FAR_SECONDS)
    _AtOnce(lock)


class _Locks:
    held: ClassVar[list[Any]] = []

    @classmethod
    def free(cls) -> None:
        cls.held[0].release()

    @staticmethod
    def free_this(lock: Any) -> None:
        lock.release()

    @classmethod
    def count(cls) -> int:
        return len(cls.held)


@BESIDES.gives_back
def by_a_class_method(lock: Any, go: threading.Event) -> None:
    _Locks.held[:] = [lock]
    del lock
    go.wait(FAR_SECONDS)
    _Locks.free()


@BESIDES.does_not
def by_another_class_method(lock: Any, go: threading.Event) -> None:
    _Locks.held[:] = [lock]
    del lock
    go.wait(FAR_SECONDS)
    assert _Locks.count() == 1


@BESIDES.gives_back
def by_a_static_method(lock: Any, go: threading.Event) -> None:
    go.wait(FAR_SECONDS)
    _Locks.free_this(lock)


class _Guarded:
    """An object with a lock."""

    lock: Any

    def __init__(self, lock: Any) -> None:
        self.__dict__["lock"] = lock

    @property
    def freed(self) -> bool:
        self.lock.release()
        return True

    @cached_property
    def freed_once(self) -> bool:
        self.lock.release()
        return True


@BESIDES.gives_back
def by_a_property(lock: Any, go: threading.Event) -> None:
    guarded = _Guarded(lock)
    go.wait(FAR_SECONDS)
    assert guarded.freed


@BESIDES.gives_back
def by_a_cached_property(lock: Any, go: threading.Event) -> None:
    guarded = _Guarded(lock)
    go.wait(FAR_SECONDS)
    assert guarded.freed_once


@BESIDES.does_not
def reads_another_attribute(lock: Any, go: threading.Event) -> None:
    guarded = _Guarded(lock)
    go.wait(FAR_SECONDS)
    assert guarded.lock


class _Looked:
    def _do(self, name: str, lock: Any) -> None:
        getattr(lock, name)()

    free = partialmethod(_do, "release")
    look = partialmethod(_do, "locked")


@BESIDES.gives_back
def by_a_partial_method(lock: Any, go: threading.Event) -> None:
    looked = _Looked()
    go.wait(FAR_SECONDS)
    looked.free(lock)


class _Setting(_Guarded):
    def __setattr__(self, name: str, value: object) -> None:
        self.lock.release()


@BESIDES.gives_back
def by_setting_an_attribute(lock: Any, go: threading.Event) -> None:
    setting = _Setting(lock)
    go.wait(FAR_SECONDS)
    setting.level = 3


class _Called(_Guarded):
    def __call__(self) -> None:
        self.lock.release()


@BESIDES.gives_back
def by_calling_an_object(lock: Any, go: threading.Event) -> None:
    called = _Called(lock)
    go.wait(FAR_SECONDS)
    called()


class _Lease(_Guarded):
    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.lock.release()


@BESIDES.gives_back
def by_leaving_a_block_that_it_is_in(lock: Any, go: threading.Event) -> None:
    with _Lease(lock):
        go.wait(FAR_SECONDS)


@BESIDES.gives_back
def by_leaving_a_block_that_is_ahead(lock: Any, go: threading.Event) -> None:
    lease = _Lease(lock)
    go.wait(FAR_SECONDS)
    with lease:
        pass


@BESIDES.does_not
def only_has_what_a_block_would_release(lock: Any, go: threading.Event) -> None:
    lease = _Lease(lock)
    go.wait(FAR_SECONDS)
    assert lease.lock


class _Bracket(_Guarded):
    def __enter__(self) -> None:
        self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()


@BESIDES.does_not
def takes_what_it_gives_back(lock: Any, go: threading.Event) -> None:
    bracket = _Bracket(lock)
    go.wait(FAR_SECONDS)
    with bracket:
        pass


@BESIDES.gives_back
def by_leaving_the_locks_own_block(lock: Any, go: threading.Event) -> None:
    go.wait(FAR_SECONDS)
    lock.__exit__(None, None, None)


@BESIDES.gives_back
def by_a_stack_onto_which_it_pushes_the_lock(lock: Any, go: threading.Event) -> None:
    go.wait(FAR_SECONDS)
    with ExitStack() as stack:
        stack.push(lock)


@BESIDES.does_not
def pushes_something_else(lock: Any, go: threading.Event) -> None:
    go.wait(FAR_SECONDS)
    with ExitStack() as stack:
        stack.callback(lock.locked)


class _Later(threading.Thread):
    def __init__(self, lock: Any) -> None:
        super().__init__(daemon=True)
        self.lock = lock

    def run(self) -> None:
        self.lock.release()


class _LaterStill(_Later):
    def __init__(self, lock: Any, go: threading.Event) -> None:
        super().__init__(lock)
        self.go = go

    def run(self) -> None:
        self.go.wait(FAR_SECONDS)
        self.free()

    def free(self) -> None:
        self.lock.release()


@BESIDES.gives_back
def by_a_thread_that_it_starts_then(lock: Any, go: threading.Event) -> None:
    go.wait(FAR_SECONDS)
    _Later(lock).start()


@BESIDES.gives_back
def by_its_own_method_as_a_thread(lock: Any, go: threading.Event) -> None:
    with suppress(RuntimeError):
        _LaterStill(lock, go).run()


@BESIDES.gives_back
def by_a_module_that_it_imports_then(lock: Any, go: threading.Event) -> None:
    go.wait(FAR_SECONDS)
    import stilltrue_test_late_module as late  # type: ignore[import-not-found]  # noqa: PLC0415

    late.free(lock)


@BESIDES.does_not
def imports_what_the_standard_library_has(lock: Any, go: threading.Event) -> None:
    go.wait(FAR_SECONDS)
    import colorsys  # noqa: PLC0415

    assert colorsys.rgb_to_hsv(0, 0, 0) != lock


@BESIDES.gives_back
def by_a_hook_of_the_interpreters(lock: Any, go: threading.Event) -> None:
    go.wait(FAR_SECONDS)
    sys.audit("stilltrue.test.free", lock)


@pytest.fixture(autouse=True)
def late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that is not loaded yet."""
    (tmp_path / f"{_LATE}.py").write_text("def free(lock):\n    lock.release()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, _LATE, raising=False)


@pytest.mark.parametrize("beside", [*BESIDES.releasing, *BESIDES.harmless], ids=lambda one: one.__name__)
def test_a_release_without_a_name_is_found(front: Front, beside: Beside) -> None:
    found = is_way_out(front, beside, threading.Lock())
    _Locks.held.clear()
    assert found is (beside in BESIDES.releasing)


@pytest.mark.parametrize("releases", [True, False])
def test_a_profile_function_is_a_way_out(front: Front, releases: bool) -> None:
    lock, go = threading.Lock(), threading.Event()

    def frees(_: object, event: str, __: object) -> None:
        if event == "never":
            lock.release()

    def counts(_: object, event: str, __: object) -> None:
        assert lock.locked() or event

    hold(front, lock)
    threading.setprofile(frees if releases else counts)
    try:
        front.start("beside", go.wait, FAR_SECONDS)
        found = looked_at(front, lock, "a thread runs code")
    finally:
        threading.setprofile(None)
    go.set()
    front.let_go()
    assert bool(found) is releases


@pytest.fixture(params=[True, False])
def collected(request: pytest.FixtureRequest) -> Iterator[tuple[list[Any], bool]]:
    """The lock that a garbage-collection callback releases, or that it only counts."""
    locks: list[Any] = []

    def free(phase: str, _: object) -> None:
        for lock in locks if phase == "never" else ():
            lock.release()

    def count(phase: str, _: object) -> None:
        assert len(phase) + len(locks)

    called = free if request.param else count
    gc.callbacks.append(called)
    yield locks, request.param
    gc.callbacks.remove(called)


def test_a_collector_callback_is_a_way_out(front: Front, collected: tuple[list[Any], bool]) -> None:
    locks, releases = collected
    lock = threading.Lock()
    locks.append(lock)
    hold(front, lock)
    found = looked_at(front, lock, "garbage is collected")
    front.let_go()
    assert bool(found) is releases


REGISTRY = """
locks = []

def reset():
    for lock in locks:
        lock.release()

class Registry:
    def __init__(self):
        self.resets = {"all": reset}

    def add(self, name):
        self.resets[name] = len

registry = Registry()

def called(phase, _):
    if phase == "never":
        registry.add(phase)
"""


_RESET: list[Any] = []


def resets_for_the_program() -> None:
    for lock in _RESET:
        lock.release()


@pytest.mark.parametrize(
    ("package", "own", "found"), [("jobs", False, True), ("ddtrace", False, False), ("ddtrace", True, True)]
)
def test_a_tracers_registry_of_functions_is_no_way_out(front: Front, package: str, own: bool, found: bool) -> None:
    """It has hundreds, some of which reset locks: its own. A function of the program's own in it (``own``) is one."""
    names: dict[str, Any] = {}
    exec(compile(REGISTRY, f"/app/lib/python3/site-packages/{package}/hooks.py", "exec"), names)
    lock = threading.Lock()
    (_RESET if own else names["locks"]).append(lock)
    if own:
        names["registry"].resets["own"] = resets_for_the_program
    gc.callbacks.append(names["called"])
    hold(front, lock)
    seen = looked_at(front, lock, "garbage is collected")
    gc.callbacks.remove(names["called"])
    _RESET.clear()
    front.let_go()
    assert bool(seen) is found


_KEPT: list[Any] = []


@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "not_recorded"])
@pytest.mark.parametrize("releases", [True, False])
def test_a_callback_at_the_end_of_a_call_is_a_way_out(front: Front, releases: bool, recorded: bool) -> None:
    """It finds the lock by a global."""

    def free(_: Any) -> None:
        for lock in _KEPT:
            lock.release()

    def count(_: Any) -> None:
        assert len(_KEPT) >= 0

    lock = threading.Lock()
    hold(front, lock)
    get = front.get if recorded else front.get._inner
    call = get.future(b"")
    call.add_done_callback(free if releases else count)
    _KEPT.append(lock)
    found = looked_at(front, lock, "a done callback of another call")
    _KEPT.clear()
    front.let_go()
    call.result()
    assert bool(found) is releases
