"""``multiprocessing.pool.ThreadPool``: a result waits for the threads that run its items, a queued item for a busy one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from multiprocessing.pool import ThreadPool

import pytest

from tests.client.look.worlds import look_at, of
from tests.client.waits.conftest import Front, is_unseen, targets


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
