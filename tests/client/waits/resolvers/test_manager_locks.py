"""A thread that waits for a lock of a manager of multiprocessing waits for its holder, or for the manager's end."""

from __future__ import annotations

import multiprocessing
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from multiprocessing.managers import SyncManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from stilltrue.protocol.report import Hold, LocalWait, Report, ResourceTarget
from stilltrue.runtime.introspection.frames import frames_of_threads
from stilltrue.runtime.waits.resolvers.manager_locks import address_of, holds_itself, keeper_of, name_of
from stilltrue.runtime.waits.wait import CallStack
from tests.client.look.worlds import look_at, of, report_when
from tests.client.waits.conftest import Front
from tests.client.waits.resolvers.test_shared_locks import acquire, acquire_in_time, enter, hold_by_bracket, hold_in_block

pytestmark = [
    pytest.mark.usefixtures("only_this_file_counts"),
    pytest.mark.skipif(sys.platform != "linux", reason="the name of the machine is Linux's"),
]
T = TypeVar("T")
SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture(scope="module")
def manager() -> Iterator[SyncManager]:
    with SPAWN.Manager() as manager:
        yield manager


def wait_of(report: Report) -> LocalWait | None:
    """The waiter's wait for a lock of a manager."""
    found = (one for one in report.waits if one.waiter == "front/thread:waiter" and isinstance(one.among[0], ResourceTarget))
    return next(found, None)


def _as_another_thread(run: Callable[[], T]) -> T:
    """What another thread gets: one that cuts does not see itself."""
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(run).result()


@pytest.mark.parametrize("kind", ["Lock", "RLock"])
@pytest.mark.parametrize("hold", [hold_in_block, hold_by_bracket])
@pytest.mark.parametrize("wait", [enter, acquire])
def test_the_wait_is_for_the_holder_or_for_who_ends_the_manager(
    front: Front, manager: SyncManager, kind: str, hold: Callable[..., None], wait: Callable[..., None]
) -> None:
    lock: Any = getattr(manager, kind)()
    name, keeper = name_of(lock), keeper_of(manager.address)
    assert name is not None
    assert keeper is not None
    front.hold(hold, lock, front.get)
    front.start("waiter", wait, lock)
    report = _as_another_thread(lambda: front.report_when_still("waiter"))
    seen = wait_of(report)
    assert seen is not None
    assert (set(seen.among), seen.needs) == ({ResourceTarget(resource=name), ResourceTarget(resource=keeper)}, 1)
    assert Hold(party="front/thread:holder", resource=name) in report.holds  # type: ignore[arg-type]
    assert [one.party for one in report.holds if one.resource == keeper] == ["front/thread:MainThread"]
    look = _as_another_thread(lambda: look_at(front.agent, report))
    assert of(look, "front/thread:waiter").unchanged
    assert ("another process may release" in of(look, "front/thread:holder").doubt) == (kind == "Lock")
    front.let_go()


def test_another_object_for_the_same_lock_has_its_name(manager: SyncManager) -> None:
    lock, other = manager.Lock(), manager.Lock()
    shown = manager.list([lock])
    again = shown[0]
    assert again is not lock
    assert name_of(again) == name_of(lock) != name_of(other)


def _is_never_seen(front: Front, lock: Any, wait: Callable[..., None]) -> bool:
    """Whether the wait for a lock that a thread holds is still unknown after a while."""
    front.hold(hold_in_block, lock, front.get)
    front.start("waiter", wait, lock)
    end = time.monotonic() + 0.5
    seen = wait_of(report_when(front.agent, lambda _: time.monotonic() > end))
    front.let_go()
    return seen is None


def test_a_wait_with_a_timeout_is_none(front: Front, manager: SyncManager) -> None:
    assert _is_never_seen(front, manager.Lock(), acquire_in_time)


def test_the_holders_of_semaphores_are_unknown(front: Front, manager: SyncManager) -> None:
    assert _is_never_seen(front, manager.Semaphore(1), enter)


def test_a_port_may_be_that_of_another_network(front: Front) -> None:
    with SyncManager(("127.0.0.1", 0), ctx=SPAWN) as manager:
        assert _is_never_seen(front, manager.Lock(), enter)


class OfTwo(SyncManager):
    """A manager whose lock lets two in."""


def test_a_lock_may_be_something_else(front: Front, manager: SyncManager, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = {**SyncManager._registry, "Lock": (lambda: threading.Semaphore(2), None, None, None)}  # type: ignore[attr-defined]
    monkeypatch.setattr(OfTwo, "_registry", registry, raising=False)
    assert _is_never_seen(front, manager.Lock(), enter)


def in_block_of_main_thread(lock: Any) -> bool:
    """Whether the main thread holds the lock, as another thread sees it."""

    def look() -> bool:
        view: Any = SimpleNamespace(
            stacks=lambda: {key: CallStack(tuple(one), key) for key, one in frames_of_threads().items()}
        )
        return holds_itself(lock, threading.main_thread().ident or 0, view)

    return _as_another_thread(look)


def tell(lock: Any, answer: Connection) -> None:
    answer.send((in_block_of_main_thread(lock), address_of(lock)))


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_is_not_in_the_block_of_its_parent(manager: SyncManager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[4])
    context = multiprocessing.get_context("fork")
    lock, (reader, writer) = manager.Lock(), context.Pipe()
    with lock:
        assert in_block_of_main_thread(lock)
        child = context.Process(target=tell, args=(lock, writer))
        child.start()
        assert reader.poll(30)
        assert reader.recv() == (False, manager.address)
        child.join()
