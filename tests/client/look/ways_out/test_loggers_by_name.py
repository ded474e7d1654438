"""Code that asks for a logger by its name may run what the program's own handlers of any logger do."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from stilltrue import Agent
from tests.client.look.worlds import Stuck, look_at_caller

FAR_SECONDS = 60.0
_CALLS: list[Any] = []


class Breaker(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        for call in _CALLS:
            call.cancel()


class Counter(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        len(_CALLS)


def logs(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        logging.getLogger("tests.by_name").critical("the upstream is dead")


def logs_by_a_child(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        logging.getLogger(f"{__name__}.child").warning("the upstream is dead")


def only_asks(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        logging.getLogger("tests.by_name").setLevel(logging.INFO)


@pytest.mark.parametrize(
    ("act", "handler", "expected"),
    [(logs, Breaker, True), (logs_by_a_child, Breaker, True), (logs, Counter, False), (only_asks, Breaker, False)],
)
def test_what_handles_the_records_of_a_logger_may_end_the_wait_of_another_party(
    alone: Callable[..., Agent],
    stuck: Stuck,
    monkeypatch: pytest.MonkeyPatch,
    act: Callable[[threading.Event], None],
    handler: type[logging.Handler],
    expected: bool,
) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])  # pytest's own
    monkeypatch.setattr(logging.getLogger("tests.by_name"), "handlers", [handler()])

    def caller(get: Any) -> None:
        _CALLS.append(get.future(b""))
        _CALLS[0].result()

    over = threading.Event()
    thread = threading.Thread(target=act, args=(over,))
    thread.start()
    seen = look_at_caller(alone, stuck, caller)
    over.set()
    thread.join()
    _CALLS.clear()
    assert bool(seen.ways_out) is expected


class Strict(logging.Logger):
    """A logger of the program's own."""

    def error(self, *args: Any, **kwargs: Any) -> None:
        """Break what is stuck."""
        for call in _CALLS:
            call.cancel()


def breaks(*args: Any, **kwargs: Any) -> logging.LogRecord:
    for call in _CALLS:
        call.cancel()
    return logging.LogRecord(*args, **kwargs)


def counts(*args: Any, **kwargs: Any) -> logging.LogRecord:
    len(_CALLS)
    return logging.LogRecord(*args, **kwargs)


def errs(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        logging.getLogger("tests.strict").error("the upstream is dead")


@pytest.mark.parametrize(
    ("act", "logger", "factory", "expected"),
    [
        (errs, Strict, logging.LogRecord, True),
        (errs, logging.Logger, logging.LogRecord, False),
        (logs, logging.Logger, breaks, True),
        (logs, logging.Logger, counts, False),
    ],
)
def test_a_logger_of_the_programs_own_and_what_makes_its_records_run_for_whoever_logs(
    alone: Callable[..., Agent],
    stuck: Stuck,
    monkeypatch: pytest.MonkeyPatch,
    act: Callable[[threading.Event], None],
    logger: type[logging.Logger],
    factory: Callable[..., logging.LogRecord],
    expected: bool,
) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])  # pytest's own
    monkeypatch.setitem(logging.root.manager.loggerDict, "tests.strict", logger("tests.strict"))
    monkeypatch.setattr(logging, "_logRecordFactory", factory)

    def caller(get: Any) -> None:
        _CALLS.append(get.future(b""))
        _CALLS[0].result()

    over = threading.Event()
    thread = threading.Thread(target=act, args=(over,))
    thread.start()
    seen = look_at_caller(alone, stuck, caller)
    over.set()
    thread.join()
    _CALLS.clear()
    assert bool(seen.ways_out) is expected
