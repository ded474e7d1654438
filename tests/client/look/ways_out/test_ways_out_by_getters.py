"""Code that gets what it cancels from a function, a property or an object that it finds by a name is a way out."""

from __future__ import annotations

import contextlib
import enum
import functools
import json
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stilltrue import Agent
from tests.client.look.worlds import Stuck, look_at_caller

member: Any = getattr(enum, "member", lambda one: one)  # Python 3.13 makes a method of a partial
FAR_SECONDS = 60.0


class Registry:
    def __init__(self) -> None:
        self.calls: dict[int, Any] = {}


_REGISTRY = Registry()


def calls_and_registers(get: Any) -> None:
    call = _REGISTRY.calls[0] = get.future(b"")
    call.result()


def registry() -> Registry:
    return _REGISTRY


cached_registry = functools.lru_cache(registry)
taken: Any = functools.partial(_REGISTRY.calls.get, 0)


def stale() -> Iterator[Any]:
    yield from _REGISTRY.calls.values()


@contextlib.contextmanager
def session() -> Iterator[Registry]:
    yield _REGISTRY


class Session:
    def __enter__(self) -> Registry:
        return _REGISTRY

    def __exit__(self, *_: object) -> None: ...


class App:
    @property
    def registry(self) -> Registry:
        return _REGISTRY


app = App()


class Made:
    """Calls a function that it was given, as a container of services does."""

    def __init__(self, make: Callable[[], Registry]) -> None:
        self.make = make

    def __call__(self) -> Registry:
        return self.make()


made = Made(lambda: _REGISTRY)


class Lazy:
    """An object that stands for another, as flask's ``request`` does."""

    def __init__(self, find: Callable[[], Any]) -> None:
        object.__setattr__(self, "_find", find)

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_find")(), name)


lazy: Any = Lazy(lambda: _REGISTRY)


class Janitor:
    def __init__(self) -> None:
        self.registry = _REGISTRY

    def sweep(self) -> None:
        for call in self.registry.calls.values():
            call.cancel()

    def count(self) -> int:
        return len(self.registry.calls)


def janitor() -> Janitor:
    return Janitor()


class Ready:
    def next(self, registry: Registry) -> Any:
        return Draining()


class Draining:
    def next(self, registry: Registry) -> Any:
        registry.calls[0].cancel()
        return self


class Life:
    def __init__(self) -> None:
        self.state: Any = Ready()

    def advance(self) -> None:
        self.state = self.state.next(_REGISTRY)


life = Life()


class Operations:
    def drop_all(self) -> None:
        for call in _REGISTRY.calls.values():
            call.cancel()

    def count(self) -> int:
        return len(_REGISTRY.calls)


operations = Operations()


def apply(verb: str) -> None:
    getattr(operations, verb)()


def drop() -> None:
    operations.drop_all()


class Settings:
    limit = 1

    @property
    def draining(self) -> bool:
        return False

    @draining.setter
    def draining(self, on: bool) -> None:
        for call in _REGISTRY.calls.values():
            call.cancel()


class Limits:
    @property
    def limit(self) -> int:
        return len(_REGISTRY.calls)

    @limit.setter
    def limit(self, limit: int) -> None: ...


settings, limits = Settings(), Limits()


def changed(text: str, what: Any) -> None:
    for name, value in json.loads(text).items():
        setattr(what, name, value)


def reload_settings() -> None:
    for name, value in json.loads("{}").items():
        setattr(settings, name, value)


class Router:
    """Calls what was registered under a name."""

    def __init__(self) -> None:
        self.table: dict[str, Callable[[], None]] = {}

    def dispatch(self, name: str) -> None:
        self.table[name]()


_ROUTER, _COUNTER = Router(), Router()


def router() -> Router:
    return _ROUTER


def counter() -> Router:
    return _COUNTER


class Context:
    __slots__ = ("calls",)

    def __init__(self) -> None:
        self.calls = _REGISTRY.calls

    def drop(self) -> None:
        self.calls[0].cancel()


class Root:
    def __init__(self) -> None:
        self.context = Context()


_ROOT = Root()


def root() -> Root:
    return _ROOT


def run_drop() -> None:
    router().dispatch("drop")


def drop_in_context() -> None:
    root().context.drop()


class Worker(threading.Thread):
    def __init__(self, call: Any) -> None:
        super().__init__()
        self.call = call

    def run(self) -> None:
        self.call.exception()


def calls_in_a_worker(get: Any) -> None:
    call = get.future(b"")
    worker = Worker(call)
    worker.start()
    call.result()
    worker.join()


def _cancel() -> None:
    for call in _REGISTRY.calls.values():
        call.cancel()


_ROUTER.table["drop"] = _cancel
_COUNTER.table["count"] = lambda: None
named_job = _ROUTER.table.get


class Action(enum.Enum):
    COUNT = member(functools.partial(len, _REGISTRY.calls))
    CANCEL = member(functools.partial(_cancel))

    def __call__(self) -> Any:
        return self.value()


class Report(enum.Enum):
    COUNT = member(functools.partial(len, _REGISTRY.calls))

    def __call__(self) -> Any:
        return self.value()


# -- what others do after a while ----------------------------------------------------------------------------------------


def from_a_function(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        registry().calls.pop(0).cancel()


def from_a_cached_function(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        cached_registry().calls.pop(0).cancel()


def from_a_method_of_a_collection(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        taken().cancel()


def from_a_generator(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        for call in stale():
            call.cancel()


def from_a_block(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        with session() as found:
            found.calls[0].cancel()


def from_a_class_as_a_block(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        with Session() as found:
            found.calls[0].cancel()


def from_a_property(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        app.registry.calls[0].cancel()


def from_an_object_that_is_called(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        made().calls[0].cancel()


def through_a_proxy(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        lazy.calls[0].cancel()


def by_an_object_made_then(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        janitor().sweep()


def by_the_next_state(over: threading.Event) -> None:
    while not over.wait(FAR_SECONDS):
        life.advance()


def by_a_global_of_a_function(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        drop()


def by_a_method_named_by_text(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        apply("drop_all")


def by_a_property_set_by_text(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        for name, value in json.loads("{}").items():
            setattr(settings, name, value)


def by_a_property_set_by_text_in_a_function(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        reload_settings()


def by_a_member_of_an_enum(over: threading.Event) -> None:
    for name in ("COUNT", "CANCEL"):
        if not over.wait(FAR_SECONDS):
            Action[name]()


def by_a_function_in_a_table(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        run_drop()


def by_an_attribute_of_what_a_function_returns(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        drop_in_context()


def by_a_function_from_a_method_of_a_table(over: threading.Event) -> None:
    job = None if over.wait(FAR_SECONDS) else named_job("drop")
    if job is not None:
        job()


def counts_by_a_function_in_a_table(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        counter().dispatch("count")


def counts_from_a_function(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        assert len(registry().calls) < 2


def counts_by_an_object_made_then(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        janitor().count()


def counts_through_a_proxy(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        assert len(lazy.calls) < 2


def sets_another_property_by_text(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        for name, value in json.loads("{}").items():
            setattr(limits, name, value)


def counts_by_a_member_of_an_enum(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        Report["COUNT"]()


CANCELLING = (
    *(from_a_function, from_a_cached_function, from_a_method_of_a_collection, from_a_generator, from_a_block),
    *(from_a_class_as_a_block, from_a_property, from_an_object_that_is_called, through_a_proxy, by_an_object_made_then),
    *(by_the_next_state, by_a_global_of_a_function, by_a_method_named_by_text, by_a_property_set_by_text),
    *(by_a_property_set_by_text_in_a_function, by_a_member_of_an_enum, by_a_function_in_a_table),
    *(by_an_attribute_of_what_a_function_returns, by_a_function_from_a_method_of_a_table),
)
COUNTING = (
    *(counts_from_a_function, counts_by_an_object_made_then, counts_through_a_proxy, sets_another_property_by_text),
    *(counts_by_a_member_of_an_enum, counts_by_a_function_in_a_table),
)


@pytest.fixture
def over() -> Iterator[threading.Event]:
    over = threading.Event()
    yield over
    over.set()
    _REGISTRY.calls.clear()


def _seen_beside(alone: Callable[..., Agent], stuck: Stuck, over: threading.Event, beside: Any, caller: Any) -> Any:
    thread = threading.Thread(target=beside, args=(over,))
    thread.start()
    seen = look_at_caller(alone, stuck, caller)
    over.set()
    thread.join()
    return seen


@pytest.mark.parametrize("beside", [*CANCELLING, *COUNTING], ids=lambda one: one.__name__)
def test_who_cancels_what_a_function_gave_it_is_a_way_out(
    alone: Callable[..., Agent], stuck: Stuck, over: threading.Event, beside: Any
) -> None:
    seen = _seen_beside(alone, stuck, over, beside, calls_and_registers)
    assert bool(seen.ways_out) is (beside in CANCELLING), seen.ways_out


def cancels_the_calls_of_workers(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        for thread in threading.enumerate():
            if isinstance(thread, Worker):
                thread.call.cancel()


def lists_the_workers(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        assert [thread.call for thread in threading.enumerate() if isinstance(thread, Worker)]


@pytest.mark.parametrize(("beside", "ends"), [(cancels_the_calls_of_workers, True), (lists_the_workers, False)])
def test_who_lists_all_threads_reaches_what_they_have(
    alone: Callable[..., Agent], stuck: Stuck, over: threading.Event, beside: Any, ends: bool
) -> None:
    seen = _seen_beside(alone, stuck, over, beside, calls_in_a_worker)
    assert bool(seen.ways_out) is ends, seen.ways_out


def cancels_in_frames(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        for frame in sys._current_frames().values():
            if "call" in frame.f_locals:
                frame.f_locals["call"].cancel()


def cancels_in_globals_of_frames(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        sys._getframe().f_globals["REG" + "ISTRY"].current.cancel()


def cancels_in_globals_of_a_function(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        globals_of: Any = cancels_in_frames.__globals__
        globals_of["REG" + "ISTRY"].current.cancel()


@pytest.mark.parametrize("beside", [cancels_in_frames, cancels_in_globals_of_frames, cancels_in_globals_of_a_function])
def test_who_reads_the_variables_of_frames_reaches_everything(
    alone: Callable[..., Agent], stuck: Stuck, over: threading.Event, beside: Any
) -> None:
    assert _seen_beside(alone, stuck, over, beside, calls_and_registers).ways_out
