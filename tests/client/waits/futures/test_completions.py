"""Which party is to complete a future: positions from which a frame surely does, similar ones, and other parties that may."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from queue import Queue
from types import SimpleNamespace
from typing import Any

import pytest

from tests.client.look.worlds import look_at, of
from tests.client.waits.conftest import PATIENCE_SECONDS, Front

FAR_SECONDS = 600.0
Inside = Callable[[], object]
Completing = Callable[[Any, Inside], object]
BOUND: dict[str, Completing] = {}
NOT_BOUND: dict[str, Completing] = {}


def bound(function: Completing) -> Completing:
    BOUND[function.__name__] = function
    return function


def not_bound(function: Completing) -> Completing:
    NOT_BOUND[function.__name__] = function
    return function


@bound
def with_its_result(future: Any, inside: Inside) -> None:
    future.set_result(inside())


@bound
def on_each_path(future: Any, inside: Inside) -> object:
    try:
        found = inside()
    except BaseException as error:
        future.set_exception(error)
        raise
    else:
        future.set_result(found)
        return found
    finally:
        print("over")


@bound
def by_a_choice(future: Any, inside: Inside) -> None:
    if inside() is None:
        future.set_exception(ValueError())
    else:
        future.set_result(1)


@bound
def of_a_request(future: Any, inside: Inside) -> None:
    request = SimpleNamespace(reply=future)
    answer = inside()
    request.reply.set_result(answer)


@bound
def in_a_caller(future: Any, inside: Inside) -> None:
    def handle() -> object:
        return inside()

    future.set_result(handle())


@not_bound
def if_it_is_not_done(future: Any, inside: Inside) -> None:
    found = inside()
    if not future.done():
        future.set_result(found)


@not_bound
def unless_another_has(future: Any, inside: Inside) -> None:
    found = inside()
    with suppress(InvalidStateError):
        future.set_result(found)


@not_bound
def if_it_has_one(future: Any, inside: Inside) -> None:
    found = inside()
    if found is not None:
        future.set_result(found)


@not_bound
def of_another_future(future: Any, inside: Inside) -> None:
    inside()
    future = Future()
    future.set_result(1)


@not_bound
def of_a_changed_request(future: Any, inside: Inside) -> None:
    request = SimpleNamespace(reply=future)
    inside()
    request.reply = Future()
    request.reply.set_result(1)


@not_bound
def by_a_method_that_it_hands_on(future: Any, inside: Inside) -> None:
    inside()
    later = [future.set_result]
    later.clear()
    future.set_result(1)


@not_bound
def only_before(future: Any, inside: Inside) -> None:
    Future[int]().set_result(1)
    inside()


@not_bound
def in_a_generator(future: Any, inside: Inside) -> None:
    def items() -> Iterator[object]:
        found = inside()
        yield found
        future.set_result(found)

    next(items())


def asks(future: Any) -> None:
    future.result(None)


@pytest.mark.parametrize("how", BOUND)
def test_a_party_that_is_bound_to_complete_a_future_is_waited_for(front: Front, how: str) -> None:
    future: Any = Future()
    front.hold(BOUND[how], future, lambda: front.get(b""))
    assert front.waits_for(asks, future) == ["thread:holder"]
    front.let_go()


@pytest.mark.parametrize("how", NOT_BOUND)
def test_of_a_party_that_may_leave_it_nothing_is_known(front: Front, how: str) -> None:
    future: Any = Future()

    def holds() -> None:
        with suppress(InvalidStateError):
            NOT_BOUND[how](future, lambda: front.get(b""))

    front.hold(holds)
    assert front.waits_unseen(asks, future)
    with suppress(InvalidStateError):
        future.set_result(1)
    front.let_go()


def test_a_result_with_a_timeout_is_not_waited_for(front: Front) -> None:
    future: Any = Future()
    front.hold(with_its_result, future, lambda: front.get(b""))
    assert front.waits_unseen(future.result, PATIENCE_SECONDS)
    front.let_go()


def test_a_chained_future_may_be_cancelled_by_whoever_awaits_the_other(front: Front) -> None:
    future: Any = Future()
    future.add_done_callback(lambda _: None)
    front.hold(with_its_result, future, lambda: front.get(b""))
    assert front.waits_unseen(asks, future)
    front.let_go()


class _Flights:
    def __init__(self, future: Any) -> None:
        self.open = {"it": future}

    def give_up(self) -> None:
        for one in list(self.open.values()):
            one.set_exception(TimeoutError())


def _by_a_timer(given: list[Any], _: threading.Event) -> None:
    timer = threading.Timer(FAR_SECONDS, given.pop().set_exception, [TimeoutError()])
    timer.daemon = True
    timer.start()


def _by_a_sweeper(given: list[Any], go: threading.Event) -> None:
    flights = _Flights(given.pop())
    if not go.wait(FAR_SECONDS):
        flights.give_up()


def _by_a_weak_reference(given: list[Any], go: threading.Event) -> None:
    weak = weakref.ref(given.pop())
    if not go.wait(FAR_SECONDS) and (found := weak()) is not None:
        found.cancel()


def _out_of_a_weak_dictionary(given: list[Any], go: threading.Event) -> None:
    weak = weakref.WeakValueDictionary({1: given.pop()})
    if not go.wait(FAR_SECONDS):
        weak[1].cancel()


def _out_of_a_queue(given: list[Any], go: threading.Event) -> None:
    queue: Queue[Any] = Queue()
    queue.put((b"", given.pop()))
    if not go.wait(FAR_SECONDS):
        queue.get()[1].set_result(1)


def _only_reads(given: list[Any], go: threading.Event) -> None:
    job = SimpleNamespace(future=given.pop())
    go.wait(FAR_SECONDS)
    assert job.future


@pytest.mark.parametrize(
    ("beside", "expected"),
    [
        (_by_a_timer, True),
        (_by_a_sweeper, True),
        (_by_a_weak_reference, True),
        (_out_of_a_weak_dictionary, True),
        (_out_of_a_queue, True),
        (_only_reads, False),
    ],
    ids=lambda one: getattr(one, "__name__", str(one)),
)
def test_another_party_that_may_complete_it_is_a_way_out(front: Front, beside: Any, expected: bool) -> None:
    future, go = Future[object](), threading.Event()
    front.hold(with_its_result, future, lambda: front.get(b""))
    front.start("beside", beside, [future], go)
    assert front.waits_for(asks, future) == ["thread:holder"]
    report = front.report_when_still("waiter")
    seen = of(look_at(front.agent, report), "front/thread:waiter")
    go.set()
    front.let_go()
    assert seen.unchanged
    assert any(one.party != "front/thread:holder" for one in seen.ways_out) is expected, seen
