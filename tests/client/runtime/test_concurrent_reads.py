"""Reads of dictionaries and sets that other threads and finalizers change meanwhile."""

from __future__ import annotations

import functools
import gc
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet, ref

from stilltrue.model import ProcessName
from stilltrue.runtime.concurrent_reads import items_of, live_members
from stilltrue.runtime.parties import Parties


class Thing:
    """Some object, such as a server."""


def meanwhile(happens: Callable[[], object], run: Callable[[], Any]) -> Any:
    """The result of ``run`` while ``happens`` is called between any two of its lines, as by another thread."""

    def trace(*_: Any) -> Any:
        happens()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return run()
    finally:
        sys.settrace(before)


def test_a_set_to_which_another_thread_adds_can_be_read() -> None:
    kept = [Thing() for _ in range(5)]
    there = WeakSet(kept)

    def add() -> None:
        kept.append(Thing())
        there.add(kept[-1])

    first = set(map(id, kept))
    assert first <= {id(one) for one in meanwhile(add, lambda: live_members(there))}
    assert len(there) == len(kept) > len(first)


def test_collected_members_are_left_out() -> None:
    kept, gone = Thing(), Thing()
    there = WeakSet([kept, gone])
    del gone
    assert live_members(there) == [kept]


class Ring:
    """Make garbage that only a collection finds."""

    def __init__(self) -> None:
        self.itself = self


@contextmanager
def collecting(make_garbage: Callable[[], object]) -> Iterator[None]:
    """Inside the block, the next allocation collects what ``make_garbage`` left."""
    threshold = gc.get_threshold()
    gc.collect()
    gc.disable()
    make_garbage()
    spares: list[Any] = [{} for _ in range(1000)]  # uses up Python's free list, so that it has to allocate the next dictionary
    gc.set_threshold(1)
    gc.enable()
    try:
        yield
    finally:
        gc.set_threshold(*threshold)
        del spares


def test_a_dictionary_from_which_finalizers_take_can_be_read() -> None:
    names: dict[int, ref[Ring]] = {}
    kept = Ring()

    def make() -> None:
        for number in range(20):
            names[number] = ref(Ring(), functools.partial(forget, number))
        names[20] = ref(kept)

    def forget(number: int, _: ref[Ring]) -> None:
        names.pop(number, None)

    with collecting(make):
        found = items_of(names)
    assert [number for number, weak in found if weak() is kept] == [20]


def test_a_thread_is_named_while_ended_threads_are_collected() -> None:
    parties = Parties(ProcessName("here"))
    here = threading.current_thread()

    def make() -> None:
        for _ in range(20):
            gone: Any = threading.Thread()
            gone.itself = gone
            parties.of_thread(gone)

    with collecting(make):
        name = parties.of_thread(here)
    assert name == f"here/thread:{here.name}"
