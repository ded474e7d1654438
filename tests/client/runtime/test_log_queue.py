"""The agent's own threads never wait for the log: a handler's lock may be part of the deadlock to report."""

from __future__ import annotations

import logging
import multiprocessing
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from stilltrue import Agent
from stilltrue.runtime import log_queue
from stilltrue.runtime.log_queue import LogQueue

PATIENCE_SECONDS = 20.0


class Stuck(logging.Handler):
    """A handler that does not return until ``go`` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.go = threading.Event(), threading.Event()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.entered.set()
        self.go.wait(PATIENCE_SECONDS)
        self.said.append(record.getMessage())


@pytest.fixture
def stuck() -> Iterator[Stuck]:
    with _stuck() as handler:
        yield handler


@contextmanager
def _stuck() -> Iterator[Stuck]:
    handler, logger = Stuck(), logging.getLogger("stilltrue")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield handler
    finally:
        handler.go.set()
        logger.removeHandler(handler)
        logger.setLevel(level)


def test_an_agent_answers_while_the_log_is_stuck(detector: Any, join: Callable[[str], Agent], stuck: Stuck) -> None:
    join("orders")
    assert stuck.entered.wait(PATIENCE_SECONDS)
    for snapshot in (1, 2):
        detector.mark(snapshot)
        assert detector.report("orders", snapshot)
    assert not stuck.said


def test_without_an_agent_a_line_is_logged_by_its_caller(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG", "stilltrue"):
        LogQueue().warning("refused: %s", 1)
    assert [(one.getMessage(), one.threadName) for one in caplog.records] == [("refused: 1", threading.current_thread().name)]


def test_lines_are_written_in_their_order_until_the_last_agent_has_ended(caplog: pytest.LogCaptureFixture) -> None:
    known = LogQueue()
    known.begin()
    known.begin()
    with caplog.at_level("DEBUG", "stilltrue"):
        known.debug("first")
        known.end()
        known.info("second")
        try:
            int("")
        except ValueError:
            known.exception("third")
        known.end()
        known.warning("fourth")
    lines = ["first", "second", "third", "fourth"]
    found = [one for one in caplog.records if one.getMessage() in lines]  # an earlier test's agent may log, too
    assert [one.getMessage() for one in found] == lines
    assert found[2].exc_info is not None
    assert [one.threadName for one in found[:3]] == ["stilltrue-log"] * 3


def test_unwritten_lines_are_bounded_and_do_not_delay_the_exit(stuck: Stuck) -> None:
    known = LogQueue()
    known.begin()
    known.info("0")
    assert stuck.entered.wait(PATIENCE_SECONDS)
    for number in range(1, 2 * log_queue.RECORDS_MAX):
        known.info("%d", number)
    known.end()
    assert not stuck.said
    stuck.go.set()
    known._writer.join(PATIENCE_SECONDS)
    said = [line for line in stuck.said if line.isdecimal()]
    assert said == list(map(str, range(len(said))))
    # an agent of another test that is still leaving may have written the line that is stuck
    assert log_queue.RECORDS_MAX <= len(said) <= log_queue.RECORDS_MAX + 1


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_the_child_of_a_fork_writes_its_own_lines() -> None:
    known = LogQueue()
    known.begin()
    forking = multiprocessing.get_context("fork")
    there: Any = forking.SimpleQueue()
    child = forking.Process(target=_in_child, args=(known, there))
    child.start()
    child.join(PATIENCE_SECONDS)
    known.end()
    assert child.exitcode == 0
    assert there.get() == [("before", "MainThread"), ("after", "stilltrue-log")]


def _in_child(known: LogQueue, there: Any) -> None:
    said: list[tuple[str, str | None]] = []

    class Saying(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append((record.getMessage(), record.threadName))

    logging.getLogger("stilltrue").addHandler(Saying())
    known.warning("before")
    known.begin()
    known.warning("after")
    known.end()
    there.put(said)
