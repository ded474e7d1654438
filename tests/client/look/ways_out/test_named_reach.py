"""Code that goes a long way to what it ends, or by way of a class; each with a near miss that ends nothing there."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, ClassVar

import pytest

from stilltrue import Agent
from stilltrue.protocol.requests.look import PartyLook
from stilltrue.runtime.look.ways_out import named_reach
from tests.client.look.ways_out.closing import FAR_SECONDS, Holder, may_close_the_channel
from tests.client.look.worlds import Stuck, holders, look_at_caller

SERVICES = 100
SESSIONS_MAX = 1_500


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


class Link:
    """A connection of a session."""

    def __init__(self) -> None:
        self.call: Any = Future()
        self.last: Any = Future()


class Session:
    """One of many sessions."""

    def __init__(self, number: int) -> None:
        self.link = Link()
        self.hook: Callable[[], object] = [number].copy
        self.other: Callable[[], object] = [number].copy

    def eval(self) -> object:
        """Return its link."""
        return self.link


SESSIONS: list[Session] = []


def _calls_each_hook(go: threading.Event) -> None:
    go.wait(FAR_SECONDS)
    for session in SESSIONS:
        session.hook()


def _calls_each_other(go: threading.Event) -> None:
    go.wait(FAR_SECONDS)
    for session in SESSIONS:
        session.other()


def _drops_each(go: threading.Event) -> None:
    go.wait(FAR_SECONDS)
    for session in SESSIONS:
        session.link.call.cancel()


def _drops_each_last(go: threading.Event) -> None:
    go.wait(FAR_SECONDS)
    for session in SESSIONS:
        session.link.last.cancel()


@pytest.fixture
def sessions() -> Iterator[list[Session]]:
    """A list that a module keeps."""
    SESSIONS.extend(map(Session, range(SESSIONS_MAX)))
    yield SESSIONS
    SESSIONS.clear()


def _looked_at(
    alone: Callable[..., Agent],
    watches: Callable[..., None],
    sessions: list[Session],
    kept: Callable[[Any], Callable[[], object]],
) -> PartyLook:
    stuck, go = Stuck(), threading.Event()

    def caller(method: Any) -> None:
        call = method.future(b"1")
        sessions[-1].link.call = call
        sessions[-1].hook = kept(call)
        watch = threading.Thread(target=watches, args=(go,), daemon=True, name="watchdog")
        watch.start()
        call.result()
        go.set()
        watch.join()

    return look_at_caller(alone, stuck, caller)


@pytest.mark.parametrize(
    ("watches", "kept", "found"),
    [
        (_calls_each_hook, lambda call: call.cancel, ["-"]),
        (_calls_each_hook, lambda call: lambda: call.cancel(), ["-"]),  # noqa: PLW0108
        (_calls_each_hook, lambda call: call.done, []),
        (_calls_each_other, lambda call: call.cancel, []),
        (_drops_each, lambda call: call.done, ["-"]),
        (_drops_each_last, lambda call: call.done, []),
    ],
    ids=["a method", "a function", "one that looks", "another", "two objects deep", "another two objects deep"],
)
def test_code_that_goes_through_many_sessions_is_a_way_out_of_the_call_of_the_last(
    alone: Callable[..., Agent],
    sessions: list[Session],
    watches: Callable[..., None],
    kept: Callable[[Any], Callable[[], object]],
    found: list[str],
) -> None:
    assert holders(_looked_at(alone, watches, sessions, kept)) == found


@pytest.mark.parametrize(("watches", "doubts"), [(_drops_each_last, True), (lambda go: go.wait(FAR_SECONDS), False)])
def test_code_that_leads_to_more_than_is_read_is_doubt(
    alone: Callable[..., Agent],
    sessions: list[Session],
    monkeypatch: pytest.MonkeyPatch,
    watches: Callable[..., None],
    doubts: bool,
) -> None:
    monkeypatch.setattr(named_reach, "OBJECTS_MAX", 1_000)
    found = _looked_at(alone, watches, sessions, lambda call: call.done)
    assert ("more objects than a look reads" in found.doubt) is doubts


def _runs_a_text(go: threading.Event) -> None:
    go.wait(FAR_SECONDS)
    eval("[one.link.call.cancel() for one in SESSIONS]")


def _has_a_method_of_that_name(go: threading.Event) -> None:
    go.wait(FAR_SECONDS)
    for one in SESSIONS:
        one.eval()


@pytest.mark.parametrize(("watches", "doubts"), [(_runs_a_text, True), (_has_a_method_of_that_name, False)])
def test_code_that_runs_what_comes_as_text_is_doubt(
    alone: Callable[..., Agent], sessions: list[Session], watches: Callable[..., None], doubts: bool
) -> None:
    found = _looked_at(alone, watches, sessions, lambda call: call.done)
    assert ("comes as text" in found.doubt) is doubts


KEPT: list[Any] = []


async def _cancels_it(call: Any) -> None:
    call.cancel()


async def _reports_it(call: Any) -> None:
    call.done()


def _runs_what_is_kept(go: threading.Event) -> None:
    go.wait(FAR_SECONDS)
    for one in KEPT:
        asyncio.run(one)


@pytest.mark.parametrize(("kept", "found"), [(_cancels_it, ["-"]), (_reports_it, [])])
def test_a_kept_coroutine_that_has_not_begun_is_a_way_out_of_who_has_it(
    alone: Callable[..., Agent], kept: Callable[[Any], Any], found: list[str]
) -> None:
    stuck, go = Stuck(), threading.Event()

    def caller(method: Any) -> None:
        call = method.future(b"1")
        KEPT.append(kept(call))
        watch = threading.Thread(target=_runs_what_is_kept, args=(go,), daemon=True, name="watchdog")
        watch.start()
        call.result()
        go.set()
        watch.join()
        KEPT.clear()

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
