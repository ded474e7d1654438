"""Code that goes a long way to what it ends, or by way of a class; each with a near miss that ends nothing there."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from stilltrue import Agent
from tests.client.look.ways_out.closing import FAR_SECONDS, Holder, may_close_the_channel
from tests.client.look.worlds import Stuck, holders, look_at_caller

SERVICES = 100


class Service:
    """One of the services of an application."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.settings = {"url": [name], "labels": {"name": (name,)}}
        self.calls: list[Any] = []
        self.history: list[Any] = []

    def sweep(self) -> None:
        """Cancel what took too long."""
        for call in self.calls:
            call.cancel()

    def trim(self) -> None:
        """Cancel what was kept for later."""
        for call in self.history:
            call.cancel()


class Container:
    """The services of an application, by name."""

    def __init__(self) -> None:
        self.services = {f"service-{number}": Service(f"service-{number}") for number in range(SERVICES)}

    def add(self, call: Any) -> None:
        """Keep a call in the service that is farthest away."""
        self.services[f"service-{SERVICES - 1}"].calls.append(call)


def _sweeps_each(go: threading.Event, container: Container) -> None:
    go.wait(FAR_SECONDS)
    for service in container.services.values():
        service.sweep()


def _trims_each(go: threading.Event, container: Container) -> None:
    go.wait(FAR_SECONDS)
    for service in container.services.values():
        service.trim()


@pytest.mark.parametrize(("watches", "found"), [(_sweeps_each, ["-"]), (_trims_each, [])])
def test_a_watchdog_over_many_services_is_a_way_out_of_the_calls_of_the_last(
    alone: Callable[..., Agent], watches: Callable[..., None], found: list[str]
) -> None:
    stuck, go, container = Stuck(), threading.Event(), Container()

    def caller(method: Any) -> None:
        call = method.future(b"1")
        container.add(call)
        watch = threading.Thread(target=watches, args=(go, container), daemon=True, name="watchdog")
        watch.start()
        call.result()
        go.set()
        watch.join()

    assert holders(look_at_caller(alone, stuck, caller)) == found


class Proxy:
    """Passes everything on to a call."""

    def __init__(self, call: Any) -> None:
        self._wrapped = call

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wrapped, name)


class Tower:
    """Calls behind proxies, and much else."""

    def __init__(self) -> None:
        self._proxies: list[Any] = []
        self.history = [[str(number), {"number": [number]}] for number in range(300)]

    def add(self, call: Any) -> None:
        """Keep a call."""
        self._proxies.append(Proxy(call))

    @property
    def proxies(self) -> tuple[Any, ...]:
        """All calls."""
        return tuple(self._proxies)


def _cancels_proxies(go: threading.Event, tower: Tower) -> None:
    go.wait(FAR_SECONDS)
    for call in tower.proxies:
        call.cancel()


def _counts_proxies(go: threading.Event, tower: Tower) -> None:
    go.wait(FAR_SECONDS)
    for call in tower.proxies:
        call.done()


@pytest.mark.parametrize(("watches", "found"), [(_cancels_proxies, ["-"]), (_counts_proxies, [])])
def test_a_watchdog_that_cancels_proxies_is_a_way_out_of_the_calls_behind_them(
    alone: Callable[..., Agent], watches: Callable[..., None], found: list[str]
) -> None:
    stuck, go, tower = Stuck(), threading.Event(), Tower()

    def caller(method: Any) -> None:
        call = method.future(b"1")
        tower.add(call)
        watch = threading.Thread(target=watches, args=(go, tower), daemon=True, name="watchdog")
        watch.start()
        call.result()
        go.set()
        watch.join()

    assert holders(look_at_caller(alone, stuck, caller)) == found


class Flights:
    """Calls in flight, in attributes of the class."""

    live: ClassVar[dict[str, Any]] = {}
    landed: ClassVar[dict[str, Any]] = {}

    @classmethod
    def drop(cls, go: threading.Event) -> None:
        """Cancel those in flight later."""
        go.wait(FAR_SECONDS)
        for call in cls.live.values():
            call.cancel()

    @classmethod
    def tidy(cls, go: threading.Event) -> None:
        """Cancel those that have landed later."""
        go.wait(FAR_SECONDS)
        for call in cls.landed.values():
            call.cancel()

    def drop_all(self, go: threading.Event) -> None:
        """Cancel those in flight later, from an object of the class."""
        go.wait(FAR_SECONDS)
        for call in self.live.values():
            call.cancel()


class Registered(type):
    """A metaclass that knows its classes."""

    known: ClassVar[list[Any]] = []

    def __init__(cls, *arguments: Any) -> None:
        super().__init__(*arguments)
        Registered.known.append(cls)


class Client(metaclass=Registered):
    """A client whose class drops its calls."""

    live: ClassVar[dict[str, Any]] = {}

    @classmethod
    def expire(cls) -> None:
        """Cancel the calls of the class."""
        for call in cls.live.values():
            call.cancel()


def _asks_each_class(go: threading.Event) -> None:
    go.wait(FAR_SECONDS)
    for kind in Registered.known:
        kind.expire()


def _calls_later(go: threading.Event, called: Callable[[threading.Event], None]) -> None:
    def later() -> None:
        called(go)

    later()


@pytest.mark.parametrize(
    ("watches", "arguments", "found"),
    [
        (Flights.drop, (), ["-"]),
        (Flights().drop_all, (), ["-"]),
        (_calls_later, (Flights.drop,), ["-"]),
        (_asks_each_class, (), ["-"]),
        (Flights.tidy, (), []),
    ],
    ids=["class method", "object", "given", "metaclass", "others"],
)
def test_code_of_a_class_is_a_way_out_of_the_calls_in_its_attributes(
    alone: Callable[..., Agent], watches: Callable[..., None], arguments: tuple[Any, ...], found: list[str]
) -> None:
    stuck, go = Stuck(), threading.Event()

    def caller(method: Any) -> None:
        call = Flights.live["it"] = Client.live["it"] = method.future(b"1")
        watch = threading.Thread(target=watches, args=(go, *arguments), daemon=True, name="watchdog")
        watch.start()
        call.result()
        go.set()
        watch.join()
        Flights.live.clear()
        Client.live.clear()

    assert holders(look_at_caller(alone, stuck, caller)) == found


CURRENT: contextvars.ContextVar[Any] = contextvars.ContextVar("CURRENT")


def _gives_up() -> None:
    CURRENT.get().cancel()


def _reports() -> None:
    CURRENT.get().done()


class Later:
    """Runs functions later, each in the context in which it was given."""

    def __init__(self) -> None:
        self.todo: list[tuple[contextvars.Context, Callable[[], None]]] = []

    def work(self, go: threading.Event) -> None:
        """Run them."""
        go.wait(FAR_SECONDS)
        for context, function in self.todo:
            context.run(function)


@pytest.mark.parametrize(("function", "found"), [(_gives_up, ["-"]), (_reports, [])])
def test_a_function_that_will_run_in_a_kept_context_is_a_way_out_of_the_call_in_it(
    alone: Callable[..., Agent], function: Callable[[], None], found: list[str]
) -> None:
    stuck, go, later = Stuck(), threading.Event(), Later()

    def caller(method: Any) -> None:
        call = method.future(b"1")
        CURRENT.set(call)
        later.todo.append((contextvars.copy_context(), function))
        watch = threading.Thread(target=later.work, args=(go,), daemon=True, name="watchdog")
        watch.start()
        call.result()
        go.set()
        watch.join()

    assert holders(look_at_caller(alone, stuck, caller)) == found


class Part:
    """A part of an application without a channel."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.settings = {"labels": [number], "limits": (number,)}


class Connection:
    """A part with a channel, and another that stays open."""

    def __init__(self, channel: Any = None, spare: Any = None) -> None:
        self.settings = {"labels": [channel is None]}
        self.channel = channel
        self.spare = spare

    def shut(self) -> None:
        """Close the channel."""
        if self.channel is not None:
            self.channel.close()


class Parts:
    """An application, whose last part has a channel."""

    def __init__(self, last: Connection) -> None:
        self.parts = [Part(number) for number in range(300)]
        self.connections = [*(Connection() for _ in range(50)), last]

    def rotate(self, go: threading.Event) -> None:
        """Close all channels later."""
        go.wait(FAR_SECONDS)
        for one in self.connections:
            one.shut()


class Channels:
    """Open channels, in an attribute of the class."""

    by_name: ClassVar[dict[str, Any]] = {}
    spare: ClassVar[dict[str, Any]] = {}

    @classmethod
    def recycle(cls) -> None:
        """Close them."""
        for one in cls.by_name.values():
            one.close()


class Recycler:
    """Calls something later."""

    def __init__(self, what: Callable[[], None]) -> None:
        self.what = what

    def work(self, go: threading.Event) -> None:
        """Call it."""
        go.wait(FAR_SECONDS)
        self.what()


def _rotates(owned: Any, go: threading.Event) -> None:
    Parts(Connection(owned)).rotate(go)


def _rotates_others(owned: Any, go: threading.Event) -> None:
    Parts(Connection(spare=owned)).rotate(go)


def _recycles(owned: Any, go: threading.Event) -> None:
    Channels.by_name["it"] = owned
    del owned
    Recycler(Channels.recycle).work(go)
    Channels.by_name.clear()


def _recycles_others(owned: Any, go: threading.Event) -> None:
    Channels.spare["it"] = owned
    del owned
    Recycler(Channels.recycle).work(go)
    Channels.spare.clear()


@pytest.mark.parametrize(
    ("holder", "closes"), [(_rotates, True), (_recycles, True), (_rotates_others, False), (_recycles_others, False)]
)
def test_a_channel_far_away_or_in_a_class_is_closed_by_code_that_goes_there(
    alone: Callable[..., Agent], holder: Holder, closes: bool
) -> None:
    assert may_close_the_channel(alone, Stuck(), holder) == closes


class App:
    """An application whose events are attributes of the class."""

    ended = threading.Event()
    warmed = threading.Event()
    hooks: ClassVar[list[Callable[[], None]]] = []

    @classmethod
    def end(cls) -> None:
        """Set one event."""
        cls.ended.set()

    @classmethod
    def warm_up(cls) -> None:
        """Set the other."""
        cls.warmed.set()

    @classmethod
    def call_hooks(cls) -> None:
        """Call what was registered."""
        for hook in cls.hooks:
            hook()


@pytest.mark.parametrize(
    ("called", "hook", "closes"),
    [
        (App.end, None, True),
        (lambda: App.end(), None, True),  # noqa: PLW0108 - its code is what names the class
        (App.call_hooks, App.ended.set, True),
        (App.warm_up, None, False),
        (App.call_hooks, App.warmed.set, False),
    ],
    ids=["class method", "function", "hook", "other event", "other hook"],
)
def test_a_callback_that_sets_an_event_of_a_class_wakes_who_closes_afterwards(
    alone: Callable[..., Agent], called: Callable[[], None], hook: Callable[[], None] | None, closes: bool
) -> None:
    App.ended.clear()
    App.hooks[:] = [] if hook is None else [hook]
    timer = threading.Timer(FAR_SECONDS, called)

    def holder(owned: Any, go: threading.Event) -> None:
        App.ended.wait()
        owned.close()

    def frees(_: Any, go: threading.Event) -> None:
        go.wait()
        App.ended.set()

    stuck = Stuck()
    timer.start()
    threading.Thread(target=frees, args=(None, stuck.go), daemon=True).start()
    try:
        assert may_close_the_channel(alone, stuck, holder) == closes
    finally:
        timer.cancel()


def test_a_watchdog_over_an_array_of_objects_is_a_way_out_of_the_calls_in_it(alone: Callable[..., Agent]) -> None:
    numpy = pytest.importorskip("numpy")
    stuck, go, table = Stuck(), threading.Event(), numpy.empty(4, dtype=object)

    def watches() -> None:
        go.wait(FAR_SECONDS)
        for call in table:
            call.cancel()

    def caller(method: Any) -> None:
        table[:] = method.future(b"1")
        watch = threading.Thread(target=watches, daemon=True, name="watchdog")
        watch.start()
        table[0].result()
        go.set()
        watch.join()

    assert "-" in holders(look_at_caller(alone, stuck, caller))
