"""A party that releases another's lock by a class or object of a registry, or within an inner function, is a way out."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from tests.client.waits.conftest import Front
from tests.client.waits.releasers.releasing import FAR_SECONDS, Beside, Besides, is_way_out

BESIDES = Besides()
_KEPT: list[Any] = []


class Command:
    by_name: ClassVar[dict[str, type[Command]]] = {}
    by_pairs: ClassVar[list[tuple[str, type[Command]]]] = []

    def __init_subclass__(cls) -> None:
        Command.by_name[cls.__name__] = cls
        Command.by_pairs.append((cls.__name__, cls))

    def __init__(self, lock: Any = None) -> None: ...

    def run(self, lock: Any) -> None: ...

    def __call__(self, lock: Any) -> None: ...


class Free(Command):
    def run(self, lock: Any) -> None:
        lock.release()


class FreeWhenCalled(Command):
    def __call__(self, lock: Any) -> None:
        lock.release()


class FreeWhenMade(Command):
    def __init__(self, lock: Any = None) -> None:
        if lock is not None:
            lock.release()


class Query:
    by_pairs: ClassVar[list[tuple[str, type[Query]]]] = []

    def __init_subclass__(cls) -> None:
        Query.by_pairs.append((cls.__name__, cls))

    def ask(self, lock: Any) -> bool:
        return bool(lock.locked())


class Ask(Query):
    def ask(self, lock: Any) -> bool:
        return not lock.locked()

    def release_all(self, locks: list[Any]) -> None:
        for lock in locks:
            lock.release()


_OBJECTS: list[tuple[str, Callable[[Any], None]]] = [("free", FreeWhenCalled())]


def _run_one() -> None:
    Command.by_name["Free"]().run(_KEPT[0])


def _run_each() -> None:
    for name, command in Command.by_pairs:
        if name == "Free":
            command().run(_KEPT[0])


def _call_each() -> None:
    for _, command in Command.by_pairs:
        command()(_KEPT[0])


def _make_one() -> None:
    Command.by_name["FreeWhenMade"](_KEPT[0])


def _call_objects() -> None:
    for _, command in _OBJECTS:
        command(_KEPT[0])


def _ask_each() -> None:
    for _, query in Query.by_pairs:
        query().ask(_KEPT[0])


def _free(lock: Any) -> bool:
    lock.release()
    return True


def _free_in_a_generator() -> None:
    any(_free(lock) for lock in _KEPT)


def _free_in_a_lambda() -> None:
    list(map(lambda lock: _free(lock), _KEPT))  # noqa: C417, PLW0108 - a function within a function


def _free_in_an_inner_function() -> None:
    def inner() -> None:
        _free(_KEPT[0])

    inner()


def _locked(lock: Any) -> bool:
    return bool(lock.locked())


def _ask_in_a_generator() -> None:
    any(_locked(lock) for lock in _KEPT)


@BESIDES.gives_back
def by_a_class_in_a_dictionary(lock: Any, go: threading.Event) -> None:
    _KEPT[:] = [lock]
    del lock
    go.wait(FAR_SECONDS)
    _run_one()


@BESIDES.gives_back
def by_a_class_in_a_list_of_pairs(lock: Any, go: threading.Event) -> None:
    _KEPT[:] = [lock]
    del lock
    go.wait(FAR_SECONDS)
    _run_each()


@BESIDES.gives_back
def by_a_call_of_an_object_of_a_class_in_a_list(lock: Any, go: threading.Event) -> None:
    _KEPT[:] = [lock]
    del lock
    go.wait(FAR_SECONDS)
    _call_each()


@BESIDES.gives_back
def by_making_an_object_of_a_class_in_a_dictionary(lock: Any, go: threading.Event) -> None:
    _KEPT[:] = [lock]
    del lock
    go.wait(FAR_SECONDS)
    _make_one()


@BESIDES.gives_back
def by_an_object_in_a_list_of_pairs(lock: Any, go: threading.Event) -> None:
    _KEPT[:] = [lock]
    del lock
    go.wait(FAR_SECONDS)
    _call_objects()


@BESIDES.gives_back
def in_a_generator(lock: Any, go: threading.Event) -> None:
    _KEPT[:] = [lock]
    del lock
    go.wait(FAR_SECONDS)
    _free_in_a_generator()


@BESIDES.gives_back
def in_a_lambda(lock: Any, go: threading.Event) -> None:
    _KEPT[:] = [lock]
    del lock
    go.wait(FAR_SECONDS)
    _free_in_a_lambda()


@BESIDES.gives_back
def in_an_inner_function(lock: Any, go: threading.Event) -> None:
    _KEPT[:] = [lock]
    del lock
    go.wait(FAR_SECONDS)
    _free_in_an_inner_function()


@BESIDES.does_not
def asks_by_a_class_in_a_list_of_pairs(lock: Any, go: threading.Event) -> None:
    _KEPT[:] = [lock]
    del lock
    go.wait(FAR_SECONDS)
    _ask_each()


@BESIDES.does_not
def asks_in_a_generator(lock: Any, go: threading.Event) -> None:
    _KEPT[:] = [lock]
    del lock
    go.wait(FAR_SECONDS)
    _ask_in_a_generator()


@pytest.mark.parametrize("beside", [*BESIDES.releasing, *BESIDES.harmless], ids=lambda one: one.__name__)
def test_who_runs_a_command_that_releases_a_lock_is_a_way_out(front: Front, beside: Beside) -> None:
    ends = is_way_out(front, beside, threading.Lock())
    _KEPT.clear()
    assert ends is (beside in BESIDES.releasing)
