"""A future in an actor's mailbox is to be completed by the actor, which is busy; and queues whose reader may leave it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from tests.client.look.worlds import look_at, of
from tests.client.waits.conftest import Front
from tests.client.waits.futures.test_completions import asks

FAR_SECONDS = 60.0
Reading = Callable[[Any, Callable[[Any], object]], object]
READ: dict[str, Reading] = {}
NOT_READ: dict[str, Reading] = {}


def read(function: Reading) -> Reading:
    READ[function.__name__] = function
    return function


def not_read(function: Reading) -> Reading:
    NOT_READ[function.__name__] = function
    return function


@dataclass
class Request:
    message: object
    reply: Any


@read
def in_two_variables(mailbox: Any, handle: Callable[[Any], object]) -> None:
    while True:
        message, reply = mailbox.get()
        try:
            reply.set_result(handle(message))
        except ValueError as error:
            reply.set_exception(error)


@read
def until_it_is_told_to_stop(mailbox: Any, handle: Callable[[Any], object]) -> None:
    while True:
        item = mailbox.get()
        if item is None:
            return
        message, reply = item[0], item[1]
        handle(message)
        item[1].set_result(reply)


@read
def of_its_object(mailbox: Any, handle: Callable[[Any], object]) -> None:
    actor = SimpleNamespace(mailbox=mailbox)
    while True:
        item = actor.mailbox.get()
        item[1].set_result(handle(item[0]))


@not_read
def once(mailbox: Any, handle: Callable[[Any], object]) -> None:
    message, reply = mailbox.get()
    reply.set_result(handle(message))


@not_read
def and_leaves_some(mailbox: Any, handle: Callable[[Any], object]) -> None:
    while True:
        message, reply = mailbox.get()
        found = handle(message)
        if found is not None:
            reply.set_result(found)


@not_read
def and_completes_others(mailbox: Any, handle: Callable[[Any], object]) -> None:
    other: Any = Future()
    while True:
        message, reply = mailbox.get()
        handle(message)
        assert reply
        other.set_result(1)


@not_read
def unless_it_is_done(mailbox: Any, handle: Callable[[Any], object]) -> None:
    while True:
        message, reply = mailbox.get()
        found = handle(message)
        if not reply.done():
            reply.set_result(found)


def _run(front: Front, how: Reading, kind: Callable[[], Any] = queue.Queue) -> Any:
    mailbox, future = kind(), Future[object]()
    mailbox.put((b"", Future[object]()))

    def works() -> None:
        with suppress(InvalidStateError, TypeError):
            how(mailbox, front.get)

    front.hold(works)
    mailbox.put((b"", future))
    return mailbox, future


def _ends(front: Front, mailbox: Any, future: Any) -> None:
    mailbox.put(None)
    with suppress(InvalidStateError):
        future.set_result(1)
    front.let_go()


@pytest.mark.parametrize("how", READ)
@pytest.mark.parametrize("kind", [queue.Queue, queue.LifoQueue])
def test_a_future_in_the_mailbox_of_a_busy_party_waits_for_it(front: Front, how: str, kind: Callable[[], Any]) -> None:
    mailbox, future = _run(front, READ[how], kind)
    assert front.waits_for(asks, future) == ["thread:holder"]
    _ends(front, mailbox, future)


@pytest.mark.parametrize("how", NOT_READ)
def test_a_queue_whose_reader_may_leave_it_tells_nothing(front: Front, how: str) -> None:
    mailbox, future = _run(front, NOT_READ[how])
    assert front.waits_unseen(asks, future)
    _ends(front, mailbox, future)


def test_of_a_request_that_is_an_object_an_attribute_is_completed(front: Front) -> None:
    def works() -> None:
        while True:
            request = mailbox.get()
            if request is None:
                return
            answer = front.get(request.message)
            with suppress(AttributeError):
                request.reply.set_result(answer)

    mailbox: queue.Queue[Any] = queue.Queue()
    future: Any = Future()
    mailbox.put(Request(b"", Future()))
    front.hold(works)
    mailbox.put(Request(b"", future))
    assert front.waits_for(asks, future) == ["thread:holder"]
    mailbox.put(None)
    front.let_go()


def _moves_it(mailbox: Any, go: threading.Event) -> None:
    other: queue.Queue[Any] = queue.Queue()
    go.wait(FAR_SECONDS)
    other.put(mailbox.get())


def _drains(mailbox: Any, go: threading.Event) -> None:
    go.wait(FAR_SECONDS)
    with mailbox.mutex:
        mailbox.queue.clear()


def _only_writes_to_it(mailbox: Any, go: threading.Event) -> None:
    settings = {"size": 1}
    go.wait(FAR_SECONDS)
    mailbox.put(settings.get("kind"))


@pytest.mark.parametrize(("beside", "expected"), [(_moves_it, True), (_drains, True), (_only_writes_to_it, False)])
def test_another_party_that_may_take_it_out_of_the_mailbox_is_a_way_out(front: Front, beside: Any, expected: bool) -> None:
    go = threading.Event()
    mailbox, future = _run(front, READ["in_two_variables"])
    other = front.start("beside", beside, mailbox, go)
    assert front.waits_for(asks, future) == ["thread:holder"]
    report = front.report_when_still("waiter", "beside")
    seen = of(look_at(front.agent, report), "front/thread:waiter")
    future.set_result(1)
    go.set()
    other.join(FAR_SECONDS)
    mailbox.put(None)
    front.let_go()
    assert seen.unchanged
    assert any(one.party != "front/thread:holder" for one in seen.ways_out) is expected, seen
