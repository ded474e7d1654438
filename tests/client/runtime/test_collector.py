"""Lists of all objects, and of those that refer to some, keep no other thread's unfinished tuple alive."""

from __future__ import annotations

import gc
import itertools
import threading
import time
from collections.abc import Generator, Iterator
from types import FunctionType, GeneratorType
from typing import Any

from stilltrue.runtime.introspection.collector import objects_of, referrers_of

SECONDS = 1.0


class Named:
    """Something to find."""


class Unfinished:
    """A thread that is making a tuple: it has the first items, and waits in the generator of the others."""

    def __init__(self, first: list[Any]) -> None:
        self._first = first
        self.begun, self._go = threading.Event(), threading.Event()
        self.made: tuple[Any, ...] = ()
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._make)
        self._thread.start()
        assert self.begun.wait(10)

    def _make(self) -> None:
        try:
            self.made = tuple(self._items())
        except SystemError as error:
            self.error = error

    def _items(self) -> Iterator[Any]:
        yield from self._first
        self.begun.set()
        self._go.wait()
        yield from range(100)

    def finish(self) -> None:
        self._go.set()
        self._thread.join()
        assert self.error is None
        assert len(self.made) == len(self._first) + 100


class NeitherComparedNorHashed(type):
    """A class of classes whose comparison and hash are code that must not run."""

    def __eq__(cls, other: object) -> bool:
        raise AssertionError

    def __hash__(cls) -> int:
        raise AssertionError


class Strange(metaclass=NeitherComparedNorHashed):
    """An object that refers to something is known to the collector."""

    def __init__(self) -> None:
        self.things = [self]


def test_no_code_of_a_class_runs() -> None:
    kept = Strange(), Named()
    assert objects_of(frozenset({Named})) == [kept[1]]


def test_all_objects_of_some_classes_are_found() -> None:
    kept = [Named(), Named()]

    def generate() -> Generator[int]:
        yield 1

    generator = generate()
    found = objects_of(frozenset({Named, FunctionType, GeneratorType}))
    assert {id(one) for one in found if type(one) is Named} == set(map(id, kept))
    assert any(one is generator for one in found)
    assert any(one is generate for one in found)
    assert {type(one) for one in found} <= {Named, FunctionType, GeneratorType}


def test_what_refers_to_an_object_is_found() -> None:
    thing = Named()
    held: list[Any] = [[thing], {"thing": thing}, (thing,), (thing, 1, None), itertools.count]
    found = referrers_of((thing,))
    assert {id(one) for one in held[:4]} <= set(map(id, found))
    assert {id(one) for one in found} == {id(one) for one in gc.get_referrers(thing) if one is not found}


def test_an_unfinished_tuple_is_no_referrer() -> None:
    thing = Named()
    unfinished = Unfinished([thing])
    found = referrers_of((thing,))
    assert [one for one in found if type(one) is tuple] == []
    unfinished.finish()
    del found


def test_the_list_of_all_objects_keeps_no_unfinished_tuple() -> None:
    unfinished = Unfinished([1])
    found = objects_of(frozenset({Named, FunctionType}))
    unfinished.finish()
    del found


def test_other_threads_make_tuples_all_the_time() -> None:
    end = time.monotonic() + SECONDS
    errors: list[BaseException] = []

    def work() -> None:
        while time.monotonic() < end:
            try:
                tuple(count for count in range(300))
            except SystemError as error:
                errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    while time.monotonic() < end:
        objects_of(frozenset({Named, FunctionType}))
    for thread in threads:
        thread.join()
    assert errors == []
