"""A party that completes or cancels an awaited future is a way out, however it reaches it; one that only has it is not."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from stilltrue.runtime.look.called_code.call_graph import names_within
from stilltrue.runtime.look.code.instructions_ahead import ahead_of
from stilltrue.runtime.look.code.names import still_named
from tests.client.look.worlds import look_at, of
from tests.client.waits.conftest import Front

FAR_SECONDS = 600.0
MANY = 400
_NEVER = object()
"""Keeps the threads from acting at the end."""
Beside = Callable[[Any, threading.Event], object]


class _Client:
    def __init__(self, future: Any) -> None:
        self.open = {"it": future}

    def answer(self) -> None:
        self.open["it"].set_result(1)


def by_a_result(given: list[Any], go: threading.Event) -> None:
    client = _Client(given.pop())
    if go.wait(FAR_SECONDS) is _NEVER:
        client.answer()


class _Jobs:
    open: ClassVar[list[Any]] = []

    def reap(self) -> None:
        for future in self.open:
            future.cancel()


def out_of_a_classs_attribute(given: list[Any], go: threading.Event) -> None:
    jobs = _Jobs()
    _Jobs.open[:] = [given.pop()]
    if go.wait(FAR_SECONDS) is _NEVER:
        jobs.reap()


def out_of_many(given: list[Any], go: threading.Event) -> None:
    store = SimpleNamespace(jobs={one: SimpleNamespace(future=Future[int]()) for one in range(MANY)})
    store.jobs[MANY] = SimpleNamespace(future=given.pop())
    for job in store.jobs.values() if go.wait(FAR_SECONDS) is _NEVER else ():
        job.future.cancel()


def by_a_method_that_an_object_was_given(given: list[Any], go: threading.Event) -> None:
    job = SimpleNamespace(on_end=given.pop().cancel)
    if go.wait(FAR_SECONDS) is _NEVER:
        job.on_end()


def by_code_that_nobody_has_read(given: list[Any], go: threading.Event) -> None:
    if go.wait(FAR_SECONDS) is _NEVER:
        eval("given[0].cancel()", {"given": given})


def by_a_comprehension(given: list[Any], go: threading.Event) -> None:
    futures = [SimpleNamespace(future=given.pop())]
    ended = [one.future.cancel() for one in futures if go.wait(FAR_SECONDS) is _NEVER]
    assert not ended


def by_what_a_comprehension_has_made(given: list[Any], go: threading.Event) -> None:
    jobs = [SimpleNamespace(future=given.pop())]
    ends = {number: lambda number=number: jobs[number].future.cancel() for number in range(1)}
    if go.wait(FAR_SECONDS) is _NEVER:
        ends[0]()


def only_has_it_in_an_object(given: list[Any], go: threading.Event) -> None:
    job = SimpleNamespace(future=given.pop())
    go.wait(FAR_SECONDS)
    assert job.future


@pytest.mark.parametrize(
    ("beside", "expected"),
    [
        (by_a_result, True),
        (out_of_a_classs_attribute, True),
        (out_of_many, True),
        (by_a_method_that_an_object_was_given, True),
        (by_code_that_nobody_has_read, True),
        (by_a_comprehension, True),
        (by_what_a_comprehension_has_made, True),
        (only_has_it_in_an_object, False),
    ],
    ids=lambda one: getattr(one, "__name__", str(one)),
)
def test_a_party_that_may_complete_a_future_is_a_way_out(front: Front, beside: Beside, expected: bool) -> None:
    go = threading.Event()
    with ThreadPoolExecutor(1, "worker") as executor:
        executor.submit(front.get, b"")
        front.wait_for_callers()
        future = executor.submit(int)
        given = [future]
        front.start("caller", future.exception)
        del future
        front.start("beside", beside, given, go)
        report = front.report_when_still("caller", "beside")
        look = of(look_at(front.agent, report), "front/thread:caller")
        _Jobs.open.clear()
        go.set()
        front.let_go()
    assert look.unchanged
    assert any("beside" in way.text for way in look.ways_out) is expected


def _names_at(text: str, called: str) -> frozenset[str] | None:
    """The names that the code of ``text`` may still use after it calls ``called()``."""
    found: list[frozenset[str] | None] = []

    def here() -> None:
        frame = sys._getframe(1)
        found.append(still_named(frame.f_code, frame.f_lasti))

    names: dict[str, Any] = {name: lambda *_: None for name in ("before", "after", "given", "other")}
    exec(compile(text, "text", "exec"), names | {called: here})
    return found[0]


@pytest.mark.parametrize(
    ("text", "named", "past"),
    [
        ("before()\nhere()\nafter()", {"after"}, {"before"}),
        ("def before_this(): before()\nhere()", set(), {"before"}),
        ("for _ in (1,):\n    before()\n    here()\nother()", {"before", "other"}, set()),
        ("other()\nfor _ in map(before, (1,)):\n    here()", {"before"}, {"other"}),
        ("other()\nbefore(\n    given(),\n    here(),\n)", {"before"}, {"other"}),
    ],
    ids=["after", "function", "loop", "iterator", "statement"],
)
def test_the_names_that_a_modules_code_may_still_use(text: str, named: set[str], past: set[str]) -> None:
    found = _names_at(text, "here")
    assert found is not None
    assert found >= named
    assert not found & past


def _passed(jobs: list[Any]) -> object:
    ended = [job.cancel() for job in jobs]
    made = [lambda: job.abort() or job for job in jobs]  # noqa: B023
    return ended, made


def test_a_finished_comprehension_leads_only_to_its_result() -> None:
    code = _passed.__code__
    behind = ahead_of(code, len(code.co_code) - 2)
    assert names_within(code, behind.functions) == {"abort"}
    before = ahead_of(code, -1)
    assert before.names | names_within(code, before.functions) >= {"abort", "cancel"}


@pytest.mark.parametrize("text", ["try:\n    here()\nfinally:\n    after()", "with open('/dev/null'):\n    here()"])
def test_code_in_a_try_or_with_block_may_use_any_name(text: str) -> None:
    assert _names_at(text, "here") is None
