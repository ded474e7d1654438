"""``multiprocessing.pool.ThreadPool``: a result waits for the threads that run its items, a queued item for a busy one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from multiprocessing.pool import ThreadPool
from typing import Any

import pytest

from stilltrue.model import PartyName, has_ended
from tests.client.look.worlds import look_at, of
from tests.client.waits.conftest import PATIENCE_SECONDS, Front, is_unseen, targets


@pytest.fixture
def pool(front: Front) -> Iterator[ThreadPool]:
    with ThreadPool(2) as pool:
        yield pool
        front.let_go()


def _workers(pool: ThreadPool) -> list[str]:
    return sorted(f"thread:{thread.name}" for thread in pool._pool)  # type: ignore[attr-defined]


def test_a_waiter_for_a_result_waits_for_the_thread_that_runs_the_item(front: Front, pool: ThreadPool) -> None:
    item = pool.apply_async(front.get, (b"",))
    front.wait_for_callers()
    front.start("caller", item.get)
    (target,) = targets(front.seen("thread:caller"))
    assert target in _workers(pool)


def test_map_waits_for_all_running_parts(front: Front, pool: ThreadPool) -> None:
    front.start("caller", pool.map, front.get, [b"", b""], 1)
    front.wait_for_callers(2)
    seen = front.seen("thread:caller")
    assert (sorted(targets(seen)), seen.needs) == (_workers(pool), 2)


def test_a_queued_item_waits_for_one_of_the_busy_threads(front: Front, pool: ThreadPool) -> None:
    pool.map_async(front.get, [b"", b""], 1)
    front.wait_for_callers(2)
    front.start("caller", pool.apply, int)
    seen = front.seen("thread:caller")
    assert (sorted(targets(seen)), seen.needs) == (_workers(pool), 1)
    assert of(look_at(front.agent, front.report_when_still("caller")), "front/thread:caller").ways_out == ()


def test_a_pool_with_an_idle_thread_is_not_full(front: Front, pool: ThreadPool) -> None:
    item = pool.apply_async(front.get, (b"",))
    front.wait_for_callers()
    later = pool.apply_async(threading.Event().wait, (0,))
    later.wait()
    front.start("caller", later.get)
    assert is_unseen(front.report_when_still(), "thread:caller")
    assert not item.ready()


def test_get_with_a_timeout_is_not_a_wait(front: Front, pool: ThreadPool) -> None:
    item = pool.apply_async(front.get, (b"",))
    front.wait_for_callers()
    front.start("caller", item.wait, 60)
    assert is_unseen(front.report_when_still("caller"), "thread:caller")


@pytest.mark.parametrize("unordered", [False, True])
def test_the_next_of_imap_waits_for_a_thread_that_runs_it(front: Front, pool: ThreadPool, unordered: bool) -> None:
    of_all = (pool.imap_unordered if unordered else pool.imap)(front.get, [b"", b""])
    front.wait_for_callers(2)
    front.start("caller", next, of_all)
    seen = front.seen("thread:caller")
    assert (len(targets(seen)), seen.needs) == (2 if unordered else 1, 1)
    assert set(targets(seen)) <= set(_workers(pool))
    assert of(look_at(front.agent, front.report_when_still("caller")), "front/thread:caller").ways_out == ()


@pytest.mark.parametrize("unordered", [False, True])
def test_a_queued_item_of_imap_waits_for_one_of_the_busy_threads(front: Front, pool: ThreadPool, unordered: bool) -> None:
    pool.map_async(front.get, [b"", b""], 1)
    front.wait_for_callers(2)
    front.start("caller", next, (pool.imap_unordered if unordered else pool.imap)(int, range(2)))
    seen = front.seen("thread:caller")
    assert (sorted(targets(seen)), seen.needs) == (_workers(pool), 1)


def test_an_iterator_that_has_yet_to_give_its_items_is_unknown(front: Front, pool: ThreadPool) -> None:
    given = threading.Event()

    def items() -> Iterator[int]:
        given.wait()
        yield 1

    of_all = pool.imap_unordered(int, items())
    front.start("caller", next, of_all)
    assert is_unseen(front.report_when_still("caller"), "thread:caller")
    given.set()


def test_an_item_of_imap_that_has_come_but_is_not_passed_on_is_unknown(front: Front, pool: ThreadPool) -> None:
    """One of two items is done, and the thread for results, which would pass it on, is in a callback."""
    passed_on, calling = threading.Event(), threading.Event()

    def call_back(_: int) -> None:
        calling.set()
        passed_on.wait()

    of_all = pool.imap_unordered(lambda number: front.get(b"") if number else number, range(2))
    assert next(of_all) == 0
    pool.apply_async(int, callback=call_back)
    assert calling.wait(PATIENCE_SECONDS)
    more = pool.imap_unordered(int, range(1))
    front.wait_for_callers()
    front.start("caller", next, more)
    assert targets(front.seen("thread:caller")) == [f"thread:{pool._result_handler.name}"]  # type: ignore[attr-defined]
    passed_on.set()


def test_a_result_waits_for_the_callback_of_another(front: Front, pool: ThreadPool) -> None:
    asks, asked = threading.Event(), list[Any]()

    def call_back(_: int) -> None:
        asked.append(pool.apply_async(int))
        asks.set()
        asked[0].get()

    first = pool.apply_async(int, callback=call_back)
    assert asks.wait(PATIENCE_SECONDS)
    front.start("caller", first.get)
    handler = f"thread:{pool._result_handler.name}"  # type: ignore[attr-defined]
    assert targets(front.seen("thread:caller")) == targets(front.seen(handler)) == [handler]
    asked[0]._set(0, (True, 0))  # nobody else does


def _runs_all(front: Front) -> None:
    pool = ThreadPool(2)
    pool.map_async(front.get, [b"", b""], 1)
    pool.close()
    pool.join()


def test_who_joins_a_pool_waits_for_all_items_that_it_runs(front: Front) -> None:
    front.start("caller", _runs_all, front)
    front.wait_for_callers(2)
    seen = front.seen("thread:caller")
    assert (len(targets(seen)), seen.needs) == (2, 2)
    assert of(look_at(front.agent, front.report_when_still("caller")), "front/thread:caller").ways_out == ()
    front.let_go()


def _terminates_later(pool: ThreadPool, begun: threading.Event, end: threading.Event) -> None:
    begun.set()
    end.wait(600)
    pool.terminate()


def _leaves_block_later(pool: ThreadPool, begun: threading.Event, end: threading.Event) -> None:
    with pool:
        begun.set()
        end.wait(600)


@pytest.mark.parametrize("rescue", [_terminates_later, _leaves_block_later])
def test_who_has_a_pool_may_terminate_it_for_who_joins_it(
    front: Front, pool: ThreadPool, rescue: Callable[[ThreadPool, threading.Event, threading.Event], None]
) -> None:
    begun, end = threading.Event(), threading.Event()
    front.start("rescue", rescue, pool, begun, end)
    begun.wait()
    pool.apply_async(front.get, (b"",))
    front.wait_for_callers()
    pool.close()
    front.start("caller", pool.join)
    front.seen("thread:caller")
    found = of(look_at(front.agent, front.report_when_still("caller")), "front/thread:caller").ways_out
    assert ["rescue" in one.text for one in found] == [True]
    end.set()


def _fails(_: int) -> None:
    raise ValueError


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_once_the_thread_for_results_has_ended_no_result_comes(front: Front, pool: ThreadPool) -> None:
    failed = pool.apply_async(int, callback=_fails)
    handler: threading.Thread = pool._result_handler  # type: ignore[attr-defined]
    handler.join(PATIENCE_SECONDS)
    front.start("caller", failed.get)
    (ended,) = targets(front.seen("thread:caller"))
    assert has_ended(PartyName(f"front/{ended}"))
    failed._event.set()  # type: ignore[attr-defined]  # nobody else does
    pool._cache.clear()  # type: ignore[attr-defined]  # or the pool could not be terminated
