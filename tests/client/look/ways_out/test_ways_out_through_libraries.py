"""Whoever uses a library's object may run what the program has given it: a log handler, a receiver of a signal, a hook."""

from __future__ import annotations

import cmd
import contextlib
import dataclasses
import functools
import logging
import logging.handlers
import queue
import selectors
import socket
import socketserver
import string
import sys
import threading
import types
import warnings
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest

from stilltrue import Agent
from tests.client.look.worlds import Stuck, look_at_caller

FAR_SECONDS = 60.0
_CALLS: dict[int, Any] = {}
_LOG = logging.getLogger("tests.shop")
_QUIET_LOG = logging.getLogger("tests.quiet_shop")


def cancel_all(*_: object) -> None:
    for call in _CALLS.values():
        call.cancel()


def count_all(*_: object) -> None:
    len(_CALLS)  # pytest's code behind an ``assert`` names much


class Breaker(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        cancel_all(record)


class Counter(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        count_all(record)


class Listener:
    def __init__(self, act: Callable[[], None]) -> None:
        self.act = act

    def __call__(self) -> None:
        self.act()


class Receiver:
    def fire(self) -> None:
        cancel_all()


class QuietReceiver:
    def fire(self) -> None:
        count_all()


class Printed:
    """Cancels when it is formatted or compared, or passed to ``heapq``."""

    def __str__(self) -> str:
        cancel_all()
        return ""

    def __lt__(self, other: object) -> bool:
        cancel_all()
        return False


class PrintedQuietly:
    def __str__(self) -> str:
        count_all()
        return ""

    def __lt__(self, other: object) -> bool:
        count_all()
        return False


class Template(string.Formatter):
    def get_value(self, key: Any, arguments: Any, named: Any) -> str:
        cancel_all()
        return ""


class QuietTemplate(string.Formatter):
    def get_value(self, key: Any, arguments: Any, named: Any) -> str:
        count_all()
        return ""


class Plugin:
    def __init_subclass__(cls) -> None:
        cancel_all()


class QuietPlugin:
    def __init_subclass__(cls) -> None:
        count_all()


class Bus:
    handlers: ClassVar[dict[str, list[Callable[[], None]]]] = defaultdict(list)

    @classmethod
    def emit(cls, topic: str) -> None:
        cls.deliver(topic)

    @classmethod
    def deliver(cls, topic: str) -> None:
        for handler in cls.handlers[topic]:
            handler()


class QuietBus:
    handlers: ClassVar[dict[str, list[Callable[[], None]]]] = defaultdict(list)

    @classmethod
    def emit(cls, topic: str) -> None:
        for handler in cls.handlers[topic]:
            handler()


Bus.handlers["late"].append(cancel_all)
QuietBus.handlers["late"].append(count_all)


@dataclasses.dataclass
class Ended:
    reason: Any = dataclasses.field(default_factory=cancel_all)


@dataclasses.dataclass
class EndedQuietly:
    reason: Any = dataclasses.field(default_factory=count_all)


@functools.lru_cache
def once() -> None:
    cancel_all()


@functools.lru_cache
def once_quietly() -> None:
    count_all()


_RECEIVER, _QUIET_RECEIVER = Receiver(), QuietReceiver()
_LISTENER, _QUIET_LISTENER = Listener(cancel_all), Listener(count_all)
_RECEIVERS, _QUIET_RECEIVERS = weakref.WeakSet([_RECEIVER]), weakref.WeakSet([_QUIET_RECEIVER])
_JOBS: queue.Queue[Any] = queue.Queue()
_QUIET_JOBS: queue.Queue[Any] = queue.Queue()
_DEQUE, _QUIET_DEQUE = deque([cancel_all]), deque([count_all])
_PRINTED, _PRINTED_QUIETLY = [Printed()], [PrintedQuietly()]
_TEMPLATE, _QUIET_TEMPLATE = Template(), QuietTemplate()
_SELECTOR, _QUIET_SELECTOR = selectors.DefaultSelector(), selectors.DefaultSelector()
_SOCKETS = socket.socketpair(), socket.socketpair()


def logs() -> None:
    _LOG.error("the upstream is dead")


def logs_quietly() -> None:
    _QUIET_LOG.error("the upstream is dead")


def sends() -> None:
    for one in _RECEIVERS:
        one.fire()


def sends_quietly() -> None:
    for one in _QUIET_RECEIVERS:
        one.fire()


def takes_a_job() -> None:
    _JOBS.get()()


def takes_a_quiet_job() -> None:
    _QUIET_JOBS.get()()


def takes_from_a_deque() -> None:
    _DEQUE.popleft()()


def takes_quietly_from_a_deque() -> None:
    _QUIET_DEQUE.popleft()()


def formats() -> None:
    assert f"{_PRINTED[0]}" == ""


def formats_quietly() -> None:
    assert f"{_PRINTED_QUIETLY[0]}" == ""


def sorts() -> None:
    _PRINTED.sort()


def sorts_quietly() -> None:
    _PRINTED_QUIETLY.sort()


def fills_a_template() -> None:
    _TEMPLATE.format("{x}")


def fills_a_quiet_template() -> None:
    _QUIET_TEMPLATE.format("{x}")


def derives() -> None:
    class Mine(Plugin):
        pass


def derives_quietly() -> None:
    class Mine(QuietPlugin):
        pass


def emits() -> None:
    Bus.emit("late")


def emits_quietly() -> None:
    QuietBus.emit("late")


def makes_a_record() -> None:
    Ended()


def makes_a_quiet_record() -> None:
    EndedQuietly()


def calls_once() -> None:
    once()


def calls_once_quietly() -> None:
    once_quietly()


def selects() -> None:
    for key, _ in _SELECTOR.select():
        key.data()


def selects_quietly() -> None:
    for key, _ in _QUIET_SELECTOR.select():
        key.data()


class Shell(cmd.Cmd):
    def do_stop(self, arguments: str) -> None:
        cancel_all(arguments)


class QuietShell(cmd.Cmd):
    def do_stop(self, arguments: str) -> None:
        count_all(arguments)


class Decorated:
    """A decorator that is a class."""

    def __init__(self, function: Callable[[], None]) -> None:
        self.function = function

    def __call__(self) -> None:
        self.function()


def steps_to_cancelling() -> Iterator[None]:
    yield
    give_up()


def steps_to_counting() -> Iterator[None]:
    yield
    count_all()


def give_up() -> None:
    cancel_all()


def is_kept(_: object) -> bool:
    give_up()
    return True


def is_kept_quietly(_: object) -> bool:
    count_all()
    return True


_DECORATED, _QUIET_DECORATED = Decorated(give_up), Decorated(count_all)
_STEPS, _QUIET_STEPS = steps_to_cancelling(), steps_to_counting()
_ZIPPED, _QUIETLY_ZIPPED = zip([1], steps_to_cancelling(), strict=False), zip([1], steps_to_counting(), strict=False)
_KEPT, _QUIETLY_KEPT = filter(is_kept, [1]), filter(is_kept_quietly, [1])


def missing(name: str) -> str:
    give_up()
    return name


def missing_quietly(name: str) -> str:
    count_all()
    return name


LAZY: Any = types.ModuleType("lazy_shop")
QUIETLY_LAZY: Any = types.ModuleType("quietly_lazy_shop")
LAZY.__getattr__, QUIETLY_LAZY.__getattr__ = missing, missing_quietly


def asks_a_module() -> None:
    len(LAZY.anything)


def asks_a_quiet_module() -> None:
    len(QUIETLY_LAZY.anything)


def runs_a_command() -> None:
    Shell().onecmd("stop")


def runs_a_quiet_command() -> None:
    QuietShell().onecmd("stop")


def calls_what_is_decorated() -> None:
    _DECORATED()


def calls_what_is_quietly_decorated() -> None:
    _QUIET_DECORATED()


def takes_a_step() -> None:
    next(_STEPS)


def takes_a_quiet_step() -> None:
    next(_QUIET_STEPS)


def takes_a_pair() -> None:
    next(_ZIPPED)


def takes_a_quiet_pair() -> None:
    next(_QUIETLY_ZIPPED)


def takes_what_is_kept() -> None:
    next(_KEPT)


def takes_quietly_what_is_kept() -> None:
    next(_QUIETLY_KEPT)


def warns() -> None:
    warnings.warn("slow", stacklevel=1)


class Line:
    def close(self) -> None:
        give_up()


class QuietLine:
    def close(self) -> None:
        count_all()


class Leaving(contextlib.ContextDecorator):
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        cancel_all()


class LeavingQuietly(contextlib.ContextDecorator):
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        count_all()


def in_block(function: Callable[[], None]) -> Callable[[], None]:
    def wrapper() -> None:
        with _LEAVING:
            function()

    return wrapper


def in_quiet_block(function: Callable[[], None]) -> Callable[[], None]:
    def wrapper() -> None:
        with _LEAVING_QUIETLY:
            function()

    return wrapper


_LEAVING, _LEAVING_QUIETLY = Leaving(), LeavingQuietly()


@in_block
def step_of_own() -> None: ...


@in_quiet_block
def quiet_step_of_own() -> None: ...


def takes_a_step_of_own() -> None:
    step_of_own()


def takes_a_quiet_step_of_own() -> None:
    quiet_step_of_own()


@Leaving()
def step() -> None: ...


@LeavingQuietly()
def quiet_step() -> None: ...


_LINE, _QUIET_LINE = Line(), QuietLine()
_MADE: defaultdict[str, Any] = defaultdict(give_up)
_QUIETLY_MADE: defaultdict[str, Any] = defaultdict(count_all)


def leaves_the_block_of_closing() -> None:
    with contextlib.closing(_LINE):
        pass


def leaves_a_quiet_block_of_closing() -> None:
    with contextlib.closing(_QUIET_LINE):
        pass


def takes_a_step_in_a_block() -> None:
    step()


def takes_a_step_in_a_quiet_block() -> None:
    quiet_step()


def makes_a_missing_item() -> None:
    len(_MADE["missing"])


def makes_a_missing_item_quietly() -> None:
    len(_QUIETLY_MADE["missing"])


PAIRS = [
    (leaves_the_block_of_closing, leaves_a_quiet_block_of_closing),
    (takes_a_step_in_a_block, takes_a_step_in_a_quiet_block),
    (takes_a_step_of_own, takes_a_quiet_step_of_own),
    (makes_a_missing_item, makes_a_missing_item_quietly),
    (logs, logs_quietly),
    (sends, sends_quietly),
    (takes_a_job, takes_a_quiet_job),
    (takes_from_a_deque, takes_quietly_from_a_deque),
    (formats, formats_quietly),
    (sorts, sorts_quietly),
    (fills_a_template, fills_a_quiet_template),
    (derives, derives_quietly),
    (emits, emits_quietly),
    (makes_a_record, makes_a_quiet_record),
    (calls_once, calls_once_quietly),
    (selects, selects_quietly),
    (runs_a_command, runs_a_quiet_command),
    (calls_what_is_decorated, calls_what_is_quietly_decorated),
    (takes_a_step, takes_a_quiet_step),
    (takes_a_pair, takes_a_quiet_pair),
    (takes_what_is_kept, takes_quietly_what_is_kept),
    (asks_a_module, asks_a_quiet_module),
]


@pytest.fixture(autouse=True)
def given(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(logging.root, "handlers", [])  # pytest's own
    _LOG.addHandler(breaker := Breaker())
    _QUIET_LOG.addHandler(counter := Counter())
    _JOBS.put(cancel_all)
    _QUIET_JOBS.put(count_all)
    _SELECTOR.register(_SOCKETS[0][0], selectors.EVENT_READ, _LISTENER)
    _QUIET_SELECTOR.register(_SOCKETS[1][0], selectors.EVENT_READ, _QUIET_LISTENER)
    yield
    _LOG.removeHandler(breaker)
    _QUIET_LOG.removeHandler(counter)
    _JOBS.get()
    _QUIET_JOBS.get()
    _SELECTOR.unregister(_SOCKETS[0][0])
    _QUIET_SELECTOR.unregister(_SOCKETS[1][0])


def calls_and_keeps_it(get: Any) -> None:
    call = _CALLS[0] = get.future(b"")
    call.result()


def ways_out_beside(alone: Callable[..., Agent], stuck: Stuck, act: Callable[[threading.Event], None]) -> list[str]:
    """The ways out of a call whose caller keeps it in the module, while a thread runs ``act``."""
    over = threading.Event()
    thread = threading.Thread(target=act, args=(over,), name="beside")
    thread.start()
    seen = look_at_caller(alone, stuck, calls_and_keeps_it)
    _CALLS.clear()
    over.set()
    thread.join()
    return [one.text for one in seen.ways_out]


def later(act: Callable[[], None]) -> Callable[[threading.Event], None]:
    """``act`` in a thread that waits first."""

    def waits(over: threading.Event) -> None:
        if not over.wait(FAR_SECONDS):
            act()

    return waits


@pytest.mark.parametrize("loud", [True, False])
@pytest.mark.parametrize(("act", "quiet"), PAIRS, ids=[one.__name__ for one, _ in PAIRS])
def test_what_a_library_was_given_counts_as_called(
    alone: Callable[..., Agent], stuck: Stuck, act: Callable[[], None], quiet: Callable[[], None], loud: bool
) -> None:
    found = ways_out_beside(alone, stuck, later(act if loud else quiet))
    assert bool(found) is loud, found


@pytest.mark.parametrize("hook", [cancel_all, count_all])
def test_a_hook_for_warnings_counts_as_called(
    alone: Callable[..., Agent], stuck: Stuck, hook: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warnings, "showwarning", hook)
    assert bool(ways_out_beside(alone, stuck, later(warns))) is (hook is cancel_all)


class Tee:
    """Stands before another stream."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        if "panic" in text:
            cancel_all()
        return int(self.stream.write(text))

    def flush(self) -> None:
        self.stream.flush()


@pytest.mark.parametrize("replaced", [True, False])
def test_a_stream_that_the_program_has_put_in_place_of_standard_output_is_written_to(
    alone: Callable[..., Agent], stuck: Stuck, replaced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if replaced:
        monkeypatch.setattr(sys, "stdout", Tee(sys.stdout))
    assert bool(ways_out_beside(alone, stuck, later(prints))) is replaced


@pytest.mark.parametrize("replaced", [True, False])
def test_so_it_is_by_a_print_that_is_called_by_another_name(
    alone: Callable[..., Agent], stuck: Stuck, replaced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if replaced:
        monkeypatch.setattr(sys, "stdout", Tee(sys.stdout))
    assert bool(ways_out_beside(alone, stuck, later_with(functools.partial(print, "panic")))) is replaced


@pytest.mark.parametrize("bound", [lambda log: log.error, lambda log: functools.partial(log.error, "slow")])
@pytest.mark.parametrize(("log", "ends"), [(_LOG, True), (_QUIET_LOG, False)])
def test_so_is_a_handler_of_a_logger_whose_method_somebody_has(
    alone: Callable[..., Agent], stuck: Stuck, bound: Callable[[Any], Callable[..., None]], log: logging.Logger, ends: bool
) -> None:
    assert bool(ways_out_beside(alone, stuck, later_with(bound(log)))) is ends


def prints() -> None:
    print("panic")


def later_with(report: Callable[[], None]) -> Callable[[threading.Event], None]:
    def waits(over: threading.Event) -> None:
        if not over.wait(FAR_SECONDS):
            report()

    return waits


class Minding(socketserver.TCPServer):
    def __init__(self, act: Callable[[], None]) -> None:
        super().__init__(("127.0.0.1", 0), socketserver.BaseRequestHandler)
        self.act = act

    def service_actions(self) -> None:
        self.act()


class Plain(socketserver.TCPServer):
    def __init__(self, _: object) -> None:
        super().__init__(("127.0.0.1", 0), socketserver.BaseRequestHandler)


@pytest.mark.parametrize(("kind", "act", "ends"), [(Minding, len, False), (Minding, cancel_all, True), (Plain, len, False)])
def test_a_socket_server_runs_what_the_program_has_put_into_its_loop(
    alone: Callable[..., Agent], stuck: Stuck, kind: Any, act: Callable[..., Any], ends: bool
) -> None:
    patient = threading.Event()  # or the call would end before the look

    def acts() -> None:
        if patient.is_set():
            act()

    def serves(over: threading.Event) -> None:
        with kind(acts) as server:
            closer = threading.Thread(target=lambda: (over.wait(), server.shutdown()))
            closer.start()
            server.serve_forever(0.01)
            closer.join()

    found = ways_out_beside(alone, stuck, serves)
    assert bool(found) is ends, found


class Guard(contextlib.ContextDecorator):
    def __init__(self, act: Callable[[], None]) -> None:
        self.act = act

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        self.act()


@contextlib.contextmanager
def guard(act: Callable[[], None]) -> Iterator[None]:
    try:
        yield
    finally:
        act()


@pytest.mark.parametrize("act", [cancel_all, count_all])
@pytest.mark.parametrize("around", [Guard, guard])
def test_the_block_around_a_decorated_function_that_runs_is_still_to_be_left(
    alone: Callable[..., Agent], stuck: Stuck, around: Callable[[Any], Any], act: Callable[[], None]
) -> None:
    def step(over: threading.Event) -> None:
        over.wait(FAR_SECONDS)

    decorated = around(act)(step)
    del step
    assert bool(ways_out_beside(alone, stuck, decorated)) is (act is cancel_all)


@pytest.mark.parametrize("act", [cancel_all, count_all])
def test_whoever_logs_wakes_the_thread_of_a_queue_listener(
    alone: Callable[..., Agent], stuck: Stuck, act: Callable[..., None]
) -> None:
    records: queue.Queue[Any] = queue.Queue()
    handler = Breaker() if act is cancel_all else Counter()
    listener = logging.handlers.QueueListener(records, handler)
    feeder = logging.handlers.QueueHandler(records)
    _FED_LOG.addHandler(feeder)
    listener.start()
    found = ways_out_beside(alone, stuck, later(logs_to_the_queue))
    listener.stop()
    _FED_LOG.removeHandler(feeder)
    assert bool(found) is (act is cancel_all), found


_FED_LOG = logging.getLogger("tests.fed_shop")


def logs_to_the_queue() -> None:
    _FED_LOG.error("the upstream is dead")
