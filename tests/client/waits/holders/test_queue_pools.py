"""Queues as pools: who waits for an item of an empty one waits for those that have taken one and will put it back."""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from stilltrue import Agent
from tests.client.look.worlds import look_at, of, serving
from tests.client.waits.conftest import Front, is_unseen
from tests.client.waits.resolvers.test_locks_of_tasks import Body, Loop, waits_of

FAR_SECONDS = 60.0
Use = Callable[[Any, Callable[[], object]], object]
BOUND: dict[str, Use] = {}
NOT_BOUND: dict[str, Use] = {}


def bound(function: Use) -> Use:
    BOUND[function.__name__] = function
    return function


def not_bound(function: Use) -> Use:
    NOT_BOUND[function.__name__] = function
    return function


@bound
def with_finally(pool: Any, inside: Callable[[], object]) -> None:
    item = pool.get()
    try:
        inside()
    finally:
        pool.put(item)


@bound
def without_a_try(pool: Any, inside: Callable[[], object]) -> None:
    item = pool.get(timeout=FAR_SECONDS)
    inside()
    pool.put_nowait(item)


@bound
def on_each_path(pool: Any, inside: Callable[[], object]) -> None:
    item = pool.get_nowait()
    try:
        inside()
    except ValueError:
        pool.put(item)
        raise
    pool.put(object())


@bound
def of_its_object(pool: Any, inside: Callable[[], object]) -> None:
    shop = SimpleNamespace(pool=pool)
    item = shop.pool.get(True)
    try:
        inside()
    finally:
        shop.pool.put(item)


@contextmanager
def taken(pool: Any) -> Iterator[Any]:
    item = pool.get()
    try:
        yield item
    finally:
        pool.put(item)


@bound
def in_a_block(pool: Any, inside: Callable[[], object]) -> None:
    with taken(pool):
        inside()


@bound
def and_puts_elsewhere(pool: Any, inside: Callable[[], object]) -> None:
    events: queue.Queue[Any] = queue.Queue()

    def tells() -> None:
        events.put(inside())

    with_finally(pool, tells)


class Connections:
    """A queue with methods, as commonly written."""

    def __init__(self, pool: Any) -> None:
        self._free = pool

    def acquire(self) -> Any:
        return self._free.get()

    def release(self, item: Any) -> None:
        self._free.put(item)


@bound
def by_methods(pool: Any, inside: Callable[[], object]) -> None:
    connections = Connections(pool)
    item = connections.acquire()
    try:
        inside()
    finally:
        connections.release(item)


@not_bound
def by_methods_perhaps(pool: Any, inside: Callable[[], object]) -> None:
    connections = Connections(pool)
    item = connections.acquire()
    if inside():
        connections.release(item)


def _releases(connections: Connections, item: Any, inside: Callable[[], object]) -> None:
    inside()
    connections.release(item)


@not_bound
def by_methods_of_a_function(pool: Any, inside: Callable[[], object]) -> None:
    connections = Connections(pool)
    item = connections.acquire()
    try:
        _releases(connections, item, inside)
    finally:
        connections.release(item)


class Doubling(Connections):
    """Its method does something else as well."""

    def release(self, item: Any) -> None:
        super().release(item)
        super().release(item)


@not_bound
def by_other_methods(pool: Any, inside: Callable[[], object]) -> None:
    connections = Doubling(pool)
    item = connections.acquire()
    try:
        inside()
    finally:
        connections.release(item)


@not_bound
def perhaps(pool: Any, inside: Callable[[], object]) -> None:
    item = pool.get()
    if inside():
        pool.put(item)


@not_bound
def too_early(pool: Any, inside: Callable[[], object]) -> None:
    item = pool.get()
    pool.put(item)
    pool.get()
    inside()


@not_bound
def after_adding_one(pool: Any, inside: Callable[[], object]) -> None:
    pool.put(0)
    item = pool.get()
    inside()
    pool.put(item)


@not_bound
def under_another_name(pool: Any, inside: Callable[[], object]) -> None:
    item = pool.get()
    pool = queue.Queue()
    inside()
    pool.put(item)


@not_bound
def within_a_function(pool: Any, inside: Callable[[], object]) -> None:
    kept = [pool.get()]
    inside()
    pool.put(kept.pop())


@not_bound
def of_another(pool: Any, inside: Callable[[], object]) -> None:
    other: queue.Queue[Any] = queue.Queue()
    item = pool.get()
    inside()
    other.put(item)


def _puts_back(pool: Any, item: object, inside: Callable[[], object]) -> None:
    inside()
    pool.put(item)


@not_bound
def handing_it_on(pool: Any, inside: Callable[[], object]) -> None:
    item = pool.get()
    try:
        _puts_back(pool, item, inside)
    finally:
        pool.put(item)


def takes(pool: Any) -> None:
    with_finally(pool, lambda: None)


def _pool(kind: Callable[[], Any] = queue.Queue, size: int = 1) -> Any:
    pool = kind()
    for number in range(size):
        pool.put_nowait(number)
    return pool


@pytest.mark.parametrize("how", [one for one in BOUND if one != "in_a_block" or sys.version_info >= (3, 11)])
def test_a_party_waits_for_the_one_that_will_put_its_item_back(front: Front, how: str) -> None:
    pool = _pool()
    front.hold(BOUND[how], pool, lambda: front.get(b""))
    assert front.waits_for(takes, pool) == ["thread:holder"]
    report = front.report_when_still("waiter")
    look = of(look_at(front.agent, report), "front/thread:waiter")
    assert (look.unchanged, look.doubt) == (True, "")
    assert all(way.party == "front/thread:holder" for way in look.ways_out), look.ways_out
    front.let_go()
    assert not of(look_at(front.agent, report), "front/thread:waiter").unchanged


@pytest.mark.parametrize("kind", [queue.LifoQueue, queue.PriorityQueue])
def test_it_waits_for_any_of_those_that_have_an_item(front: Front, kind: Callable[[], Any]) -> None:
    pool = _pool(kind, 2)
    front.start("other", with_finally, pool, lambda: front.get(b""))
    front.wait_for_callers(1)
    front.start("holder", with_finally, pool, lambda: front.get(b""))
    front.wait_for_callers(1)
    assert sorted(front.waits_for(takes, pool)) == ["thread:holder", "thread:other"]
    front.let_go()


@pytest.mark.parametrize("back", [1, 2])
def test_a_party_may_have_several_items(front: Front, back: int) -> None:
    pool = _pool(size=2)

    def both() -> None:
        first = pool.get()
        second = pool.get()
        front.get(b"")
        pool.put(second)
        pool.put(first)

    def one() -> None:
        first = pool.get()
        second = pool.get()
        front.get(b"")
        pool.put(second)
        pool.put(second)
        assert first is not None

    front.hold(both if back == 2 else one)
    if back == 2:
        assert front.waits_for(takes, pool) == ["thread:holder"]
    else:
        assert front.waits_unseen(takes, pool)
    front.let_go()


@pytest.mark.parametrize("how", NOT_BOUND)
def test_of_a_party_that_may_keep_its_item_nothing_is_known(front: Front, how: str) -> None:
    pool = _pool()
    if how == "after_adding_one":
        pool.get()
    front.hold(NOT_BOUND[how], pool, lambda: front.get(b""))
    assert front.waits_unseen(takes, pool)
    pool.put(0)
    front.let_go()


def test_a_wait_with_a_timeout_is_not_reported(front: Front) -> None:
    pool = _pool()
    front.hold(with_finally, pool, lambda: front.get(b""))
    assert front.waits_unseen(pool.get, True, FAR_SECONDS)
    front.let_go()


def _streams(pool: Any) -> Iterator[Any]:
    item = pool.get()
    yield item
    pool.put(item)


def _streams_by_methods(pool: Any) -> Iterator[Any]:
    connections = Connections(pool)
    item = connections.acquire()
    yield item
    connections.release(item)


@pytest.mark.parametrize("streams", [_streams, _streams_by_methods])
def test_a_generator_that_waits_to_be_asked_may_have_an_item(front: Front, streams: Callable[[Any], Iterator[Any]]) -> None:
    pool = _pool(size=2)
    asked_later = streams(pool)
    next(asked_later)
    front.hold(with_finally, pool, lambda: front.get(b""))
    assert front.waits_for(takes, pool) == ["thread:holder"]
    report = front.report_when_still("waiter")
    assert not of(look_at(front.agent, report), "front/thread:waiter").unchanged
    assert next(asked_later, None) is None
    front.let_go()


def _puts_another(pool: Any, go: threading.Event) -> None:
    go.wait(FAR_SECONDS)
    pool.put(0)


def _by_a_timer(pool: Any, _: threading.Event) -> None:
    timer = threading.Timer(FAR_SECONDS, pool.put, [0])
    timer.daemon = True
    timer.start()


def _into_its_contents(pool: Any, go: threading.Event) -> None:
    go.wait(FAR_SECONDS)
    with pool.mutex:
        pool.queue.append(0)
        pool.not_empty.notify()


def _from_another_queue(pool: Any, go: threading.Event) -> None:
    other = _pool()
    go.wait(FAR_SECONDS)
    item = other.get()
    pool.put(item)


def _for_each(pool: Any, go: threading.Event) -> None:
    go.wait(FAR_SECONDS)
    list(map(pool.put, [0]))


def _by_a_text(pool: Any, go: threading.Event) -> None:
    go.wait(FAR_SECONDS)
    getattr(pool, "".join(("pu", "t")))(0)


def _perhaps_its_own(pool: Any, go: threading.Event) -> None:
    perhaps(pool, lambda: go.wait(FAR_SECONDS))


def _releases_another(pool: Any, go: threading.Event) -> None:
    connections = Connections(pool)
    go.wait(FAR_SECONDS)
    connections.release(0)


def _only_its_own(pool: Any, go: threading.Event) -> None:
    go.wait(FAR_SECONDS)
    takes(pool)


def _only_elsewhere(pool: Any, go: threading.Event) -> None:
    events: queue.Queue[Any] = queue.Queue()
    go.wait(FAR_SECONDS)
    events.put(pool.qsize())


@pytest.mark.parametrize(
    ("beside", "expected"),
    [
        (_puts_another, True),
        (_by_a_timer, True),
        (_into_its_contents, True),
        (_from_another_queue, True),
        (_for_each, True),
        (_by_a_text, True),
        (_perhaps_its_own, True),
        (_releases_another, True),
        (_only_its_own, False),
    ],
    ids=lambda one: getattr(one, "__name__", str(one)),
)
def test_another_party_that_may_put_one_is_a_way_out(front: Front, beside: Any, expected: bool) -> None:
    pool, go = _pool(size=2 if beside is _perhaps_its_own else 1), threading.Event()
    front.start("beside", beside, pool, go)
    while pool.qsize() > 1:
        pass
    front.hold(with_finally, pool, lambda: front.get(b""))
    assert front.waits_for(takes, pool) == ["thread:holder"]
    report = front.report_when_still("waiter")
    seen = of(look_at(front.agent, report), "front/thread:waiter")
    go.set()
    front.let_go()
    assert seen.unchanged
    assert any(one.party != "front/thread:holder" for one in seen.ways_out) is expected, seen


class Shop:
    """A service with a pool."""

    def __init__(self) -> None:
        self.pool = _pool()
        self.connections = Connections(self.pool)
        self.kept: list[Any] = []

    def uses_methods(self, request: bytes, _: Any) -> bytes:
        item = self.connections.acquire()
        self.connections.release(item)
        return request

    def only_releases(self, request: bytes, _: Any) -> bytes:
        self.connections.release(0)
        return request

    def takes_or_releases(self, request: bytes, _: Any) -> bytes:
        if request:
            self.kept.append(self.connections.acquire())
        else:
            self.connections.release(self.kept.pop())
        return request

    def uses(self, request: bytes, _: Any) -> bytes:
        takes(self.pool)
        return request

    def uses_in_a_block(self, request: bytes, _: Any) -> bytes:
        with taken(self.pool):
            return request

    def grows(self, request: bytes, _: Any) -> bytes:
        self.pool.put(0)
        return request

    def opens(self, request: bytes, _: Any) -> bytes:
        self.pool.queue.append(0)
        return request

    def grows_by_a_text(self, request: bytes, _: Any) -> bytes:
        getattr(self.pool, request.decode())(0)
        return request


@pytest.mark.parametrize(
    ("method", "doubtful"),
    [
        (Shop.uses, False),
        (Shop.uses_in_a_block, False),
        (Shop.grows, True),
        (Shop.opens, True),
        (Shop.grows_by_a_text, True),
        (Shop.uses_methods, False),
        (Shop.only_releases, True),
        (Shop.takes_or_releases, True),
    ],
)
def test_a_method_of_a_server_that_only_puts_back_what_it_takes_is_no_doubt(
    front: Front, alone: Callable[..., Agent], method: Any, doubtful: bool
) -> None:
    shop = Shop()
    with serving(alone("other"), Query=method.__get__(shop)):
        front.hold(with_finally, shop.pool, lambda: front.get(b""))
        assert front.waits_for(takes, shop.pool) == ["thread:holder"]
        report = front.report_when_still("waiter")
        look = of(look_at(front.agent, report), "front/thread:waiter")
        front.let_go()
    assert ("/s/Query" in look.doubt) is doubtful, look.doubt


def test_a_party_that_has_the_only_item_waits_for_itself(front: Front) -> None:
    pool = _pool()
    assert front.waits_for(with_finally, pool, lambda: takes(pool)) == ["thread:waiter"]
    report = front.report_when_still("waiter")
    look = of(look_at(front.agent, report), "front/thread:waiter")
    assert (look.unchanged, look.ways_out, look.doubt) == (True, (), "")
    pool.put(0)
    front.let_go()


# -- tasks -----------------------------------------------------------------------------------------------------------------


async def _uses(loop: Any) -> None:
    item = await loop.pool.get()
    try:
        await asyncio.sleep(FAR_SECONDS)
    finally:
        loop.pool.put_nowait(item)


async def _may_keep(loop: Any) -> None:
    kept = [await loop.pool.get()]
    await asyncio.sleep(FAR_SECONDS)
    loop.pool.put_nowait(kept.pop())


async def _makes(loop: Any) -> None:
    loop.pool = asyncio.Queue()
    loop.pool.put_nowait(0)


async def _feeds(loop: Any) -> None:
    await asyncio.sleep(FAR_SECONDS)
    await loop.pool.put(0)


async def _feeds_by_a_timer(loop: Any) -> None:
    asyncio.get_running_loop().call_later(FAR_SECONDS, loop.pool.put_nowait, 0)


def test_a_task_waits_for_the_one_that_has_the_item(front: Front) -> None:
    loop = Loop(front)
    loop.run(_makes, _uses, _uses)
    report = loop.report("t2")
    assert waits_of(report, "t2") == [["task:t1"]]
    seen = of(look_at(front.agent, report), "front/task:t2")
    assert (seen.unchanged, seen.doubt) == (True, "")
    loop.stop()


def test_of_a_task_that_may_keep_its_item_nothing_is_known(front: Front) -> None:
    loop = Loop(front)
    loop.run(_makes, _may_keep, _uses)
    assert is_unseen(front.report_when_still("loop"), "task:t2")
    loop.stop()


@pytest.mark.parametrize("feeds", [_feeds, _feeds_by_a_timer])
def test_a_task_or_timer_that_puts_another_is_a_way_out(front: Front, feeds: Body) -> None:
    loop = Loop(front)
    loop.run(_makes, _uses, _uses, feeds)
    seen = of(look_at(front.agent, loop.report("t2")), "front/task:t2")
    assert any("task t3" in one.text or "timer" in one.text for one in seen.ways_out), seen
    loop.stop()
