"""An object with a closing finalizer may be closed by code that drops its last reference, such as an emptied session cache."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stilltrue import Agent
from tests.client.look.test_leaving_loops import way_out_beside
from tests.client.look.ways_out.closing import FAR_SECONDS, Holder, interrupted, may_close_the_channel
from tests.client.look.worlds import LoopWorld, Stuck, holders, look_at_caller


class WithFinalizer:
    """Closes its channel when it is dropped, by ``weakref.finalize``."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel
        weakref.finalize(self, channel.close)


class WithDel:
    """The same by ``__del__``."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel

    def __del__(self) -> None:
        self.channel.close()


class Telling(WithDel):
    """The same for an asynchronous channel, which others close for it."""

    def __del__(self) -> None:
        closing.append(self.channel.close)


closing: list[Any] = []


class Plain:
    """Leaves its channel open."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel


sessions: dict[str, Any] = {}


@pytest.fixture(autouse=True)
def _no_sessions() -> Iterator[None]:
    yield
    sessions.clear()


def empties(go: threading.Event) -> None:
    interrupted(go)
    sessions.clear()


def deletes(go: threading.Event) -> None:
    interrupted(go)
    del sessions["a"]


def below(go: threading.Event) -> None:
    interrupted(go)
    forget()


def forget() -> None:
    sessions.pop("a")


def closes_below(go: threading.Event) -> None:
    interrupted(go)
    close_all()


def close_all() -> None:
    for one in sessions.values():
        one.channel.close()


def counts(go: threading.Event) -> None:
    interrupted(go)
    print(len(sessions))


def kept_by(kind: Callable[[Any], Any], then: Callable[[threading.Event], None]) -> Holder:
    def holder(channel: Any, go: threading.Event) -> None:
        sessions["a"] = kind(channel)
        del channel
        then(go)

    return holder


@pytest.mark.parametrize("kind", [WithFinalizer, WithDel])
@pytest.mark.parametrize("then", [empties, deletes, below], ids=lambda one: one.__name__)
def test_code_that_drops_the_last_reference_is_a_way_out(
    alone: Callable[..., Agent], stuck: Stuck, kind: Any, then: Any
) -> None:
    assert may_close_the_channel(alone, stuck, kept_by(kind, then))


@pytest.mark.parametrize(("kind", "then"), [(WithFinalizer, counts), (WithDel, counts), (Plain, empties), (Plain, deletes)])
def test_keeping_the_reference_or_dropping_one_of_several_is_not_a_way_out(
    alone: Callable[..., Agent], stuck: Stuck, kind: Any, then: Any
) -> None:
    assert not may_close_the_channel(alone, stuck, kept_by(kind, then))


@pytest.mark.parametrize(("kind", "expected"), [(Telling, True), (Plain, False)])
async def test_a_timer_that_empties_their_collection_is_a_way_out(world: LoopWorld, kind: Any, expected: bool) -> None:
    held = {"a": kind(world.channel)}
    assert bool(await way_out_beside(world, lambda loop: loop.call_later(FAR_SECONDS, held.clear))) is expected


def test_a_function_that_closes_a_channel_only_it_names_is_a_way_out(alone: Callable[..., Agent], stuck: Stuck) -> None:
    assert may_close_the_channel(alone, stuck, kept_by(Plain, closes_below))


class Session:
    """The object for which a call is made."""


def _evicts(go: threading.Event, held: dict[str, Session]) -> None:
    go.wait(FAR_SECONDS)
    held.clear()


@pytest.mark.parametrize("weakly", [weakref.ref, weakref.proxy])
@pytest.mark.parametrize("cancels", [True, False])
def test_a_weak_references_callback_may_end_a_call_when_its_object_dies(
    alone: Callable[..., Agent], stuck: Stuck, cancels: bool, weakly: Callable[[object, Callable[[object], None]], object]
) -> None:
    held = {"a": Session()}
    told = []

    def caller(get: Any) -> None:
        call = get.future(b"")

        def cancel(_: object) -> None:
            call.cancel()

        def tell(_: object) -> None:
            print(call)

        told.append(weakly(held["a"], cancel if cancels else tell))
        del cancel, tell
        call.result()

    other = threading.Thread(target=_evicts, args=(stuck.go, held))
    other.start()
    assert holders(look_at_caller(alone, stuck, caller)) == (["-"] if cancels else [])
    told.clear()
    other.join()
