"""Fixtures for the tests of seen waits: a process with a call that is stuck until the test ends, and readers of its report."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from stilltrue import Agent
from stilltrue.protocol.report import LocalWait, PartyTarget, Report
from stilltrue.runtime import compat
from stilltrue.runtime.look.ways_out.kinds import signalling_children
from stilltrue.runtime.waits.databases.source_search import Mentions
from stilltrue.runtime.waits.orphaned_locks import census
from stilltrue.runtime.waits.pipes import signallers
from stilltrue.runtime.waits.reachability import requests, task_waits, thread_waits
from stilltrue.runtime.waits.reachability.loops import on_loops
from stilltrue.runtime.waits.reachability.names import code_names, module_names
from stilltrue.runtime.waits.reachability.references import thread_reach
from stilltrue.runtime.waits.resolvers import processes
from tests.client.look.worlds import Stuck, report_of, report_when, serving

PATIENCE_SECONDS = 20.0
SEARCH_SECONDS = 60.0


class Front:
    """A process whose threads the test starts; the call ``get(b"")`` is stuck until :meth:`let_go`."""

    def __init__(self, agent: Agent, get: Any, stuck: Stuck) -> None:
        self.agent = agent
        self.get = get
        self._stuck = stuck
        self._threads: list[threading.Thread] = []

    def start(self, name: str, target: Callable[..., object], *arguments: Any) -> threading.Thread:
        """Start a thread with this name."""
        thread = threading.Thread(target=target, args=arguments, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def wait_for_callers(self, count: int = 1) -> None:
        """Wait until this number of calls is stuck."""
        self._stuck.wait_for_callers(count)

    def hold(self, target: Callable[..., object], *arguments: Any) -> None:
        """Start a thread called ``holder``; return once its call is stuck."""
        self.start("holder", target, *arguments)
        self.wait_for_callers()

    def waits_for(self, target: Callable[..., object], *arguments: Any) -> list[str]:
        """Start a thread called ``waiter``; return the parties that it is seen to wait for."""
        self.start("waiter", target, *arguments)
        return targets(self.seen("thread:waiter"))

    def waits_unseen(self, target: Callable[..., object], *arguments: Any) -> bool:
        """Start a thread called ``waiter``; return whether it is blocked without being seen to wait for a party."""
        self.start("waiter", target, *arguments)
        return is_unseen(self.report_when_still("waiter"), "thread:waiter")

    def let_go(self) -> None:
        """Release the stuck calls, and join the threads."""
        self._stuck.go.set()
        for thread in self._threads:
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive()

    def seen(self, waiter: str) -> LocalWait:
        """The wait of the party whose name has this ending, once it is seen."""
        return seen_in(report_when(self.agent, lambda report: bool(_of(report, waiter))), waiter)

    def report_when_still(self, *names: str) -> Report:
        """The report once these threads are blocked for good."""
        threads = {thread.name: thread for thread in self._threads}
        while not all(_stands(threads[name]) for name in names):
            pass
        report = report_of(self.agent)
        assert self.agent.live.faults == 0
        return report


def _stands(thread: threading.Thread) -> bool:
    """Whether a thread has not run for some time, and is not merely waiting for a processor."""
    assert thread.ident is not None
    before = compat.processor_time(thread.ident)
    threading.Event().wait(0.05)
    return thread.is_alive() and _sleeps(thread) and compat.processor_time(thread.ident) == before


def _sleeps(thread: threading.Thread) -> bool:
    """Whether the system reports that it sleeps."""
    try:
        said = Path(f"/proc/self/task/{thread.native_id}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return True
    return said.rpartition(")")[2].split()[0] == "S"


def _of(report: Report, waiter: str) -> list[LocalWait]:
    return [wait for wait in report.waits if wait.waiter.endswith(waiter) and isinstance(wait.among[0], PartyTarget)]


def seen_in(report: Report, waiter: str) -> LocalWait:
    """The only wait for parties of the party whose name has this ending."""
    (found,) = _of(report, waiter)
    return found


def is_unseen(report: Report, waiter: str) -> bool:
    """Whether the party whose name has this ending does not wait for parties."""
    return not _of(report, waiter)


def targets(wait: LocalWait) -> list[str]:
    """The parties that the wait is for, without the process's name."""
    return [target.party.split("/", 1)[1] for target in wait.among if isinstance(target, PartyTarget)]


@pytest.fixture
def stuck() -> Iterator[Stuck]:
    stuck = Stuck()
    yield stuck
    stuck.go.set()


@pytest.fixture
def front(alone: Callable[..., Agent], stuck: Stuck) -> Iterator[Front]:
    agent, back = alone("front"), alone("back")
    with serving(back, workers=8, Get=stuck) as address, grpc.insecure_channel(address) as channel:
        yield Front(agent, agent.channel(channel).unary_unary("/s/Get"), stuck)
        stuck.go.set()


def _is_in(paused: Any, file: str) -> bool:
    """Whether a coroutine or generator is of a function in a file."""
    code = compat.code_of(paused)
    return code is not None and code.co_filename == file


def of_this_file(mentions: Mentions, own: str) -> Mentions:
    """The same search, of this file and of what is imported from now on."""
    fresh = Mentions(mentions._wanted.pattern.decode(), own_only=mentions._own_only)
    fresh._read = {str(getattr(one, "__file__", "")) for one in list(sys.modules.values())} - {own}
    return fresh


@pytest.fixture
def only_this_file_counts(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Ignore other tests of this process, whose code asks for all threads or objects, and the size of the process."""
    for searching in (thread_waits, task_waits):
        monkeypatch.setattr(searching, "SEARCH_SECONDS_MAX", SEARCH_SECONDS)
        monkeypatch.setattr(searching, "AGAIN_SECONDS_MAX", thread_waits.AGAIN_SECONDS)
    monkeypatch.setattr(thread_waits, "LOOK_SECONDS_MAX", SEARCH_SECONDS)
    monkeypatch.setattr(requests, "SECONDS_MAX", SEARCH_SECONDS)
    monkeypatch.setattr(thread_waits, "SHARE_OF_TIME", 1.0)
    monkeypatch.setattr(census, "BLOCKS_MAX", sys.maxsize)
    asks, own = code_names.comes_by_anything, str(request.path)
    monkeypatch.setattr(thread_reach, "comes_by_anything", lambda code: code.co_filename == own and asks(code))
    monkeypatch.setattr(thread_reach, "lists_under_another_name", lambda _: False)
    for name in ("may_be_reached", "main_has_another_name"):
        monkeypatch.setattr(module_names, name, lambda *_: False)
    for module, searched in (
        (processes, ("_NUMBERS",)),
        (signallers, ("_SENDS", "_ALARMS", "_ENDS_WITH_THREADS")),
        (signalling_children, ("_SENDS", "_HANDS_ON")),
    ):
        for name in searched:
            monkeypatch.setattr(module, name, of_this_file(getattr(module, name), own))
    before, loops_of = threading.enumerate(), on_loops.loops_of

    def loops_of_this_test(running: Any) -> Any:
        others = {thread.ident for thread in before if thread.is_alive()}  # a new thread gets the number of one that has ended
        return loops_of({one: those for one, those in running.items() if one not in others})

    monkeypatch.setattr(requests, "loops_of", loops_of_this_test)
    mention = on_loops.others_mention
    monkeypatch.setattr(
        requests, "others_mention", lambda paused, *rest: mention([one for one in paused if _is_in(one, own)], *rest)
    )
    names, loads, takes = code_names.may_name_anything, code_names.imports_another, module_names._imports_part
    monkeypatch.setattr(module_names, "may_name_anything", lambda code: code.co_filename == own and names(code))
    monkeypatch.setattr(
        module_names, "imports_another", lambda words, space: space.get("__file__") == own and loads(words, space)
    )
    monkeypatch.setattr(module_names, "_imports_part", lambda code, space: code.co_filename == own and takes(code, space))
