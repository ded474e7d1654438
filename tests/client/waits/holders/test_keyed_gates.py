"""Keyed gates, made of a condition and a set of keys in use: a party waits for the one that has added its key."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from stilltrue import Agent
from stilltrue.runtime.waits.holders.gates.keyed_gates import _written
from tests.client.look.worlds import look_at, of, report_when, serving
from tests.client.waits.conftest import Front, targets
from tests.client.waits.resolvers.test_locks_of_tasks import waits_of

FAR_SECONDS = 60.0


class Keys:
    """Each key is used by one party at a time, as commonly written; each variant has a subclass."""

    def __init__(self) -> None:
        self.condition = threading.Condition()
        self.busy: set[Any] = set()

    def use(self, key: Any, inside: Callable[[], object]) -> None:
        with self.condition:
            while key in self.busy:
                self.condition.wait()
            self.busy.add(key)
        try:
            inside()
        finally:
            with self.condition:
                self.busy.remove(key)
                self.condition.notify_all()


class ByPredicate(Keys):
    def use(self, key: Any, inside: Callable[[], object]) -> None:
        with self.condition:
            self.condition.wait_for(lambda: key not in self.busy)
            self.busy.add(key)
        try:
            inside()
        finally:
            with self.condition:
                self.busy.discard(key)
                self.condition.notify_all()


class ByBlock(Keys):
    @contextmanager
    def using(self, key: Any) -> Iterator[None]:
        with self.condition:
            while self.busy and key in self.busy:
                self.condition.wait()
            self.busy.add(key)
        try:
            yield
        finally:
            with self.condition:
                self.busy.remove(key)
                self.condition.notify_all()

    def use(self, key: Any, inside: Callable[[], object]) -> None:
        with self.using(key):
            inside()

    def count(self) -> int:
        return len(self.busy)


class WithTimeout(Keys):
    def use(self, key: Any, inside: Callable[[], object]) -> None:
        with self.condition:
            while key in self.busy:
                self.condition.wait(20)
            self.busy.add(key)
        try:
            inside()
        finally:
            with self.condition:
                self.busy.remove(key)
                self.condition.notify_all()


class Impatient(Keys):
    """The wait may end while the key is in use."""

    closed = False

    def use(self, key: Any, inside: Callable[[], object]) -> None:
        with self.condition:
            while key in self.busy and not self.closed:
                self.condition.wait()
            self.busy.add(key)
        try:
            inside()
        finally:
            with self.condition:
                self.busy.discard(key)
                self.condition.notify_all()


class Clearing(Keys):
    """Other parties are meant to free all keys."""

    def clear(self) -> None:
        self.busy.clear()


class Handing(Keys):
    """Others may get the set."""

    @property
    def in_use(self) -> set[Any]:
        return self.busy


class Renaming(Keys):
    """The key that is removed may be another one."""

    def use(self, key: Any, inside: Callable[[], object]) -> None:
        with self.condition:
            while key in self.busy:
                self.condition.wait()
            self.busy.add(key)
        try:
            inside()
            key = str(key)
        finally:
            with self.condition:
                self.busy.discard(key)
                self.condition.notify_all()


class Shared(Keys):
    """Something else refers to the set."""

    def __init__(self) -> None:
        super().__init__()
        self.also = [self.busy]


class Forgetting(ByPredicate):
    def forget(self, key: Any) -> None:
        with self.condition:
            self.busy.discard(key)
            self.condition.notify_all()


@pytest.mark.parametrize("keys", [Keys(), ByPredicate(), ByBlock()], ids=lambda keys: type(keys).__name__)
@pytest.mark.parametrize("key", ["a", 7, ("a", (b"b", None))], ids=repr)
def test_a_party_waits_for_the_one_that_uses_its_key(front: Front, keys: Keys, key: object) -> None:
    front.hold(keys.use, key, lambda: front.get(b""))
    assert front.waits_for(keys.use, key, lambda: None) == ["thread:holder"]
    report = front.report_when_still("waiter", "holder")
    look = of(look_at(front.agent, report), "front/thread:waiter")
    assert (look.unchanged, look.doubt) == (True, "")
    assert all(way.party == "front/thread:holder" for way in look.ways_out)
    front.let_go()
    assert not of(look_at(front.agent, report), "front/thread:waiter").unchanged


def test_it_does_not_wait_for_users_of_other_keys(front: Front) -> None:
    keys = Keys()
    front.start("other", keys.use, "b", lambda: front.get(b""))
    front.wait_for_callers(1)
    front.hold(keys.use, "a", lambda: front.get(b""))
    assert front.waits_for(keys.use, "a", lambda: None) == ["thread:holder"]
    front.let_go()


@pytest.mark.parametrize(
    "keys",
    [WithTimeout(), Impatient(), Clearing(), Handing(), Renaming(), Shared()],
    ids=lambda keys: type(keys).__name__,
)
def test_a_wait_that_may_end_otherwise_is_not_reported(front: Front, keys: Keys) -> None:
    front.hold(keys.use, "a", lambda: front.get(b""))
    assert front.waits_unseen(keys.use, "a", lambda: None)
    front.let_go()


class _Word(str):
    __slots__ = ()


@pytest.mark.parametrize("key", [1.5, _Word("a"), frozenset({"a"})], ids=repr)
def test_keys_that_code_of_the_application_may_compare_are_unknown(front: Front, key: object) -> None:
    keys = Keys()
    front.hold(keys.use, key, lambda: front.get(b""))
    assert front.waits_unseen(keys.use, key, lambda: None)
    front.let_go()


def test_equal_keys_are_written_alike_and_no_others() -> None:
    keys = [1, True, "1", b"1", (1,), ("1",), ("1", "2"), ("1,2",), (("1",), "2"), None, "None", 0, False, (), ((),)]
    for one in keys:
        for other in keys:
            assert (_written(one) == _written(other)) == (one == other), (one, other)


def let_another_end_it(keys: Forgetting) -> None:
    keys.forget("a")


@pytest.mark.parametrize("how", ["method", "function", "attribute"])
def test_a_party_that_may_free_the_key_later_is_a_way_out(front: Front, how: str) -> None:
    keys = ByPredicate() if how == "attribute" else Forgetting()
    go = threading.Event()

    def frees() -> None:
        go.wait(FAR_SECONDS)
        if how == "attribute":
            keys.busy.discard("a")
        elif isinstance(keys, Forgetting) and how == "method":
            keys.forget("a")
        elif isinstance(keys, Forgetting):
            let_another_end_it(keys)

    front.start("other", frees)
    front.hold(keys.use, "a", lambda: front.get(b""))
    assert front.waits_for(keys.use, "a", lambda: None) == ["thread:holder"]
    report = front.report_when_still("waiter", "other")
    look = of(look_at(front.agent, report), "front/thread:waiter")
    assert look.doubt or any(way.party != "front/thread:holder" for way in look.ways_out)
    go.set()
    front.let_go()


def test_a_party_that_uses_its_key_already_waits_for_itself(front: Front) -> None:
    keys = ByPredicate()
    front.start("waiter", keys.use, "a", lambda: keys.use("a", lambda: None))
    assert targets(front.seen("thread:waiter")) == ["thread:waiter"]
    report = front.report_when_still("waiter")
    look = of(look_at(front.agent, report), "front/thread:waiter")
    assert (look.unchanged, look.ways_out, look.doubt) == (True, (), "")
    let_it_free_its_key(keys)
    front.let_go()


def test_it_does_not_if_others_are_meant_to_free_the_key(front: Front) -> None:
    keys = Forgetting()
    assert front.waits_unseen(keys.use, "a", lambda: keys.use("a", lambda: None))
    let_it_free_its_key(keys)
    front.let_go()


def let_it_free_its_key(keys: Keys) -> None:
    """Let a party go on that waits for itself."""
    with keys.condition:
        keys.busy.discard("a")
        keys.condition.notify_all()


class Table:
    """A service with keys of its own."""

    def __init__(self) -> None:
        self.keys = ByPredicate()

    def uses(self, request: bytes, _: Any) -> bytes:
        self.keys.use(request, lambda: None)
        return request

    def frees(self, request: bytes, _: Any) -> bytes:
        self.keys.busy.discard("a")
        return request

    def frees_by_a_text(self, request: bytes, _: Any) -> bytes:
        getattr(self.keys.busy, request.decode())("a")
        return request


@pytest.mark.parametrize(("method", "doubtful"), [(Table.uses, False), (Table.frees, True), (Table.frees_by_a_text, True)])
def test_a_method_of_a_server_that_only_uses_keys_of_its_own_is_no_doubt(
    front: Front, alone: Callable[..., Agent], method: Any, doubtful: bool
) -> None:
    table = Table()
    with serving(alone("other"), Query=method.__get__(table)):
        front.hold(table.keys.use, "a", lambda: front.get(b""))
        assert front.waits_for(table.keys.use, "a", lambda: None) == ["thread:holder"]
        report = front.report_when_still("waiter")
        look = of(look_at(front.agent, report), "front/thread:waiter")
        front.let_go()
    assert ("/s/Query" in look.doubt) is doubtful, look.doubt


class KeysOfTasks:
    """The same for tasks."""

    def __init__(self) -> None:
        self.condition = asyncio.Condition()
        self.busy: set[str] = set()

    async def use(self, key: str, inside: Callable[[], Any]) -> None:
        async with self.condition:
            while key in self.busy:
                await self.condition.wait()
            self.busy.add(key)
        try:
            await inside()
        finally:
            async with self.condition:
                self.busy.remove(key)
                self.condition.notify_all()


async def test_tasks_wait_for_each_others_keys(front: Front) -> None:
    keys, both = KeysOfTasks(), asyncio.Barrier(2)

    async def nothing() -> None:
        return None

    async def takes(one: str, other: str) -> None:
        async def further() -> None:
            await both.wait()
            await keys.use(other, nothing)

        await keys.use(one, further)

    tasks = [asyncio.create_task(takes("x", "y"), name="a"), asyncio.create_task(takes("y", "x"), name="b")]
    report = await asyncio.to_thread(report_when, front.agent, lambda report: all(waits_of(report, name) for name in "ab"))
    assert (waits_of(report, "a"), waits_of(report, "b")) == ([["task:b"]], [["task:a"]])
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
