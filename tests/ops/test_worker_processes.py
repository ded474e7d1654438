"""Worker processes leave Ctrl-C to their parent, from the moment they start; it does not wait for tasks that have not begun."""

from __future__ import annotations

import signal
import time

import pytest

from detector.ops.process.worker_processes import WorkerPool


def test_workers_are_not_interrupted_and_their_parent_can_be() -> None:
    with WorkerPool(2, signal.raise_signal, signal.SIGINT) as pool:
        assert list(pool.map(signal.raise_signal, [signal.SIGINT] * 4)) == [None] * 4
        assert list(pool.map(abs, [-1, -2, -3], chunksize=2)) == [1, 2, 3]
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_an_interrupted_parent_waits_only_for_the_tasks_that_have_begun() -> None:
    with pytest.raises(KeyboardInterrupt), WorkerPool(1, time.sleep, 0) as pool:  # noqa: PT012
        pool.submit(abs, -1).result()
        waiting = [pool.submit(time.sleep, 0.5), *(pool.submit(abs, -number) for number in range(1, 100))]
        while not waiting[1].running():  # it is in the process's queue then
            time.sleep(0.01)
        raise KeyboardInterrupt
    done = [each.result() for each in waiting if not each.cancelled()]
    assert done, "the sleep and what was queued behind it"
    assert set(done) == {None}, "those in the process's queue were not done"
    assert len(done) < 5


def test_a_block_that_ends_as_it_should_finishes_all_tasks() -> None:
    with WorkerPool(1, time.sleep, 0) as pool:
        done = [pool.submit(abs, -number) for number in range(20)]
    assert [each.result() for each in done] == list(range(20))
