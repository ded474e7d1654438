"""Code that completes only futures of its own, so a future request that runs it ends nobody else's wait; and other code."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from stilltrue.runtime.waits.futures.own_futures import completes_only_own, sets_only_own_events

OWN: list[Callable[..., Any]] = []
NOT_OWN: list[Callable[..., Any]] = []
_lock = threading.Lock()


def own(function: Callable[..., Any]) -> Callable[..., Any]:
    OWN.append(function)
    return function


def not_own(function: Callable[..., Any]) -> Callable[..., Any]:
    NOT_OWN.append(function)
    return function


@own
def the_first_of_a_flight(flights: Any, key: str, compute: Any) -> Any:
    with _lock:
        flight = flights.get(key)
        first = flight is None
        if first:
            flight = flights[key] = Future()
    if not first:
        return flight.result()
    try:
        found = compute(key)
    except BaseException as error:
        flight.set_exception(error)
        raise
    flight.set_result(found)
    return found


@own
def with_a_flag(flights: Any, key: str, compute: Any) -> Any:
    first = False
    with _lock:
        flight = flights.get(key)
        if flight is None:
            flights[key] = flight = Future()
            first = True
    if first:
        flight.set_result(compute(key))
    return flight.result()


@own
def with_a_return(flights: Any, key: str, compute: Any) -> Any:
    if (flight := flights.get(key)) is not None:
        return flight.result()
    mine = Future[Any]()
    flights[key] = mine
    mine.set_result(compute(key))
    return mine.result()


@own
async def on_a_loop(self: Any, key: str) -> Any:
    if key in self.flights:
        return await asyncio.shield(self.flights[key])
    flight = self.flights[key] = asyncio.get_running_loop().create_future()
    found = await self.compute(key)
    flight.set_result(found)
    return found


@own
async def asks_an_actor(mailbox: Any) -> Any:
    reply = asyncio.get_running_loop().create_future()
    await mailbox.put(reply)
    return await reply


@own
def completes_nothing(flights: Any, key: str) -> Any:
    return flights[key].result()


@not_own
def whichever_it_finds(flights: Any, key: str) -> None:
    flight = flights.pop(key)
    flight.set_result(1)


@not_own
def out_of_its_object(self: Any) -> None:
    self.flight.set_result(1)


@not_own
def given(flight: Any) -> None:
    flight.cancel()


@not_own
def the_first_or_another(flights: Any, key: str) -> None:
    flight = flights.get(key)
    if flight is None:
        flight = Future()
    flight.set_result(1)


@not_own
def with_a_flag_for_something_else(flights: Any, key: str, first: bool) -> None:
    flight = flights.get(key)
    if flight is None:
        flight = Future()
    if first:
        flight.set_result(1)


@not_own
def in_a_function_within(flights: Any) -> Any:
    def gives_up() -> None:
        for one in flights:
            one.set_exception(TimeoutError())

    return gives_up


@not_own
def by_a_text(flight: Any, name: str) -> Any:
    return getattr(flight, name)


@not_own
def hands_on(executor: Any, flight: Any) -> None:
    executor.submit(flight.set_result, 1)


@not_own
async def awaits_another(self: Any, key: str) -> Any:
    return await self.flights[key]


@not_own
async def awaits_what_it_gets(self: Any, key: str) -> Any:
    return await self.flights.get(key)


@not_own
async def awaits_for_a_time(self: Any, key: str) -> Any:
    return await asyncio.wait_for(self.flights[key], 5)


@pytest.mark.parametrize("function", OWN, ids=lambda one: one.__name__)
def test_it_completes_only_futures_of_its_own(function: Any) -> None:
    assert completes_only_own([function.__code__])


@pytest.mark.parametrize("function", NOT_OWN, ids=lambda one: one.__name__)
def test_it_may_complete_or_cancel_those_of_others(function: Any) -> None:
    assert not completes_only_own([function.__code__])


def test_a_function_without_async_may_return_anybodys_future() -> None:
    async def awaits(self: Any, key: str) -> Any:
        return await self.flight_of(key)

    def flight_of(self: Any, key: str) -> Any:
        return self.flights[key]

    async def coroutine(self: Any, key: str) -> Any:
        return key

    assert not completes_only_own([awaits.__code__, flight_of.__code__])
    assert completes_only_own([awaits.__code__, coroutine.__code__.replace(co_name="flight_of")])


async def loads_once(self: Any, key: str) -> Any:
    loaded = self.loading.get(key)
    if loaded is not None:
        await loaded.wait()
        return self.loaded[key]
    loaded = self.loading[key] = asyncio.Event()
    self.loaded[key] = await self.load(set(key))
    loaded.set()
    return self.loaded[key]


def has_builtin_sets_only(names: Any) -> Any:
    return set(names) | {one for one in names if one}


def makes_it_outside_a_lock(self: Any, key: str) -> None:
    own = threading.Event()
    with _lock:
        self.loading[key] = own
    own.set()


def sets_what_it_finds(self: Any, key: str) -> None:
    self.loading[key].set()


def sets_the_first_or_another(self: Any, key: str) -> None:
    loaded = self.loading.get(key)
    if loaded is None:
        loaded = threading.Event()
    loaded.set()


def sets_what_a_factory_gives(self: Any) -> None:
    shared = self.events.Event()
    shared.set()


def sets_what_it_is_given(loaded: Any) -> None:
    loaded.set()


def hands_its_method_on(executor: Any, loaded: Any) -> None:
    executor.submit(loaded.set)


def sets_in_a_function_within(self: Any) -> Any:
    return lambda: [one.set() for one in self.loading.values()]


def sets_by_a_text(self: Any) -> Any:
    return getattr(self.loaded, self.name)()


@pytest.mark.parametrize("function", [loads_once, has_builtin_sets_only, makes_it_outside_a_lock])
def test_it_sets_only_events_of_its_own(function: Any) -> None:
    assert sets_only_own_events([function.__code__])


@pytest.mark.parametrize(
    "function",
    [
        sets_what_it_finds,
        sets_the_first_or_another,
        sets_what_a_factory_gives,
        sets_what_it_is_given,
        hands_its_method_on,
        sets_in_a_function_within,
        sets_by_a_text,
    ],
)
def test_it_may_set_those_of_others(function: Any) -> None:
    assert not sets_only_own_events([function.__code__])
