"""Releases by code that is not named: it comes by its name through a pipe or a file, or from a module that is chosen late."""

from __future__ import annotations

import importlib
import importlib.metadata
import multiprocessing
import operator
import pickle
import pkgutil
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from stilltrue.runtime.waits.process_view import LiveProcessView
from tests.client.look.worlds import look_at, of
from tests.client.waits.conftest import Front
from tests.client.waits.releasers import commands
from tests.client.waits.releasers.releasing import FAR_SECONDS, Beside, Besides, is_way_out

BESIDES = Besides()


@BESIDES.gives_back
def by_a_function_of_a_module_with_a_computed_name(_: Any, go: threading.Event) -> None:
    if not go.wait(FAR_SECONDS):
        getattr(commands, f"do_{sys.argv[0]}")()


@BESIDES.gives_back
def by_the_attribute_of_a_module_that_is_read(_: Any, go: threading.Event) -> None:
    if not go.wait(FAR_SECONDS):
        operator.attrgetter(sys.argv[0])(commands)()


@BESIDES.gives_back
def by_a_module_among_all(_: Any, go: threading.Event) -> None:
    if not go.wait(FAR_SECONDS):
        sys.modules[sys.argv[0]].run()


@BESIDES.gives_back
def by_loading_a_module_again(_: Any, go: threading.Event) -> None:
    if not go.wait(FAR_SECONDS):
        importlib.reload(sys)


@BESIDES.gives_back
def by_an_object_named_by_text(_: Any, go: threading.Event) -> None:
    if not go.wait(FAR_SECONDS):
        pkgutil.resolve_name(sys.argv[0])()


@BESIDES.gives_back
def by_the_plugins_that_are_installed(_: Any, go: threading.Event) -> None:
    if not go.wait(FAR_SECONDS):
        for one in importlib.metadata.entry_points(group="repairs"):
            one.load()()


@BESIDES.gives_back
def by_what_comes_through_a_pipe(_: Any, go: threading.Event) -> None:
    jobs, _other = multiprocessing.Pipe()
    if not go.wait(FAR_SECONDS):
        job, arguments = jobs.recv()
        job(*arguments)


@BESIDES.gives_back
def by_what_it_unpickles(_: Any, go: threading.Event) -> None:
    data = b""
    if not go.wait(FAR_SECONDS):
        job = pickle.loads(data)
        job()


async def _gives_back(lock: Any) -> AsyncIterator[None]:
    try:
        yield
    finally:
        lock.release()


@BESIDES.gives_back
def by_an_asynchronous_generator_that_it_drops(lock: Any, go: threading.Event) -> None:
    kept = [_gives_back(lock)]
    with suppress(StopIteration):
        anext(kept[0]).__await__().send(None)
    del lock
    go.wait(FAR_SECONDS)
    kept.clear()


@BESIDES.does_not
def with_data_from_a_pipe(_: Any, go: threading.Event) -> None:
    data, _other = multiprocessing.Pipe()
    found: list[Any] = []
    if not go.wait(FAR_SECONDS):
        found.append(data.recv())


@BESIDES.does_not
def with_data_that_it_unpickles(_: Any, go: threading.Event) -> None:
    found: list[Any] = []
    if not go.wait(FAR_SECONDS):
        found.append(pickle.loads(b""))


@BESIDES.does_not
def by_a_function_of_a_module_that_it_names(_: Any, go: threading.Event) -> None:
    if not go.wait(FAR_SECONDS):
        commands.do_nothing()


HARMLESS = BESIDES.harmless if sys.version_info >= (3, 11) else []
"""On Python 3.10 the agent does not read what a function calls."""


@pytest.mark.parametrize("beside", [*BESIDES.releasing, *HARMLESS], ids=lambda one: one.__name__)
def test_code_that_may_run_any_code_may_release_the_lock(front: Front, beside: Beside) -> None:
    lock = threading.Lock()
    commands.LOCKS.append(lock)
    found = is_way_out(front, beside, lock)
    commands.LOCKS.clear()
    assert found is (beside in BESIDES.releasing)


def take(lock: threading.Lock) -> None:
    lock.acquire()


def takes_and_gives_back(lock: threading.Lock) -> None:
    with lock:
        pass


@pytest.mark.parametrize("beside", [by_the_plugins_that_are_installed, by_loading_a_module_again])
def test_code_that_may_run_any_code_may_release_a_lock_that_was_left_behind(
    front: Front, monkeypatch: pytest.MonkeyPatch, beside: Beside
) -> None:
    monkeypatch.setattr(LiveProcessView, "has_no_other_holders", lambda *_: True)  # proved in a process of its own
    lock, go = threading.Lock(), threading.Event()
    taker = front.start("taker", take, lock)
    taker.join()
    front.start("beside", beside, None, go)
    front.start("waiter", takes_and_gives_back, lock)
    report = front.report_when_still("waiter", "beside")
    seen = of(look_at(front.agent, report), "front/thread:waiter")
    lock.release()
    go.set()
    front.let_go()
    assert any("beside" in way.text for way in seen.ways_out)
