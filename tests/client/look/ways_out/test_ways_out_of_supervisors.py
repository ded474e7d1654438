"""A holder of another's thread, or of a copy of its context, that cancels the call found there is a way out."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any

import grpc
import pytest

from stilltrue import Agent
from tests.client.look.worlds import Stuck, holders, look_at_caller

FAR_SECONDS = 600.0
CURRENT: contextvars.ContextVar[Any] = contextvars.ContextVar("CURRENT")


class Worker(threading.Thread):
    """A worker of the application's own pool that exposes its call."""

    def __init__(self, get: Any) -> None:
        super().__init__(name="worker", daemon=True)
        self.get = get
        self.beats = 0
        self.call: Any = None

    def run(self) -> None:
        self.beats += 1
        self.call = self.get.future(b"")
        self.call.result()


class Supervisor:
    """Supervises the workers."""

    def __init__(self, workers: list[Worker]) -> None:
        self.workers = workers

    def restart(self) -> None:
        """Cancel the calls of all workers."""
        for worker in self.workers:
            worker.call.cancel()

    def report(self) -> int:
        """Only count."""
        return sum(worker.beats for worker in self.workers if worker.call.done())


def supervise(act: Callable[[], object], go: threading.Event) -> None:
    if not go.wait(FAR_SECONDS):
        act()


@pytest.mark.parametrize(("act", "expected"), [(Supervisor.restart, True), (Supervisor.report, False)])
def test_a_party_with_a_thread_subclass_may_cancel_the_calls_it_exposes(
    alone: Callable[..., Agent], stuck: Stuck, act: Callable[[Supervisor], object], expected: bool
) -> None:
    def caller(get: Any) -> None:
        worker = Worker(get)
        supervisor = Supervisor([worker])
        threading.Thread(target=supervise, args=(partial(act, supervisor), stuck.go), name="supervisor").start()
        worker.run()

    assert ("-" in holders(look_at_caller(alone, stuck, caller))) is expected


class Quiet:
    """A job that counts."""

    turns = 0

    def tick(self) -> None:
        """Take a turn."""
        self.turns += 1


class Killer(Quiet):
    """A job that cancels a call."""

    def __init__(self, call: Any) -> None:
        self.call = call

    def tick(self) -> None:
        self.call.cancel()


class Entry:
    """A job of a timetable."""

    def __init__(self, job: Quiet) -> None:
        self.job = job


def run_all(entries: list[Entry], go: threading.Event) -> None:
    if not go.wait(FAR_SECONDS):
        for entry in entries:
            entry.job.tick()


@pytest.mark.parametrize(("kind", "expected"), [(Killer, True), (lambda _: Quiet(), False)], ids=["cancels", "counts"])
@pytest.mark.parametrize("others", [8, 100])
def test_each_of_many_jobs_may_cancel_the_call(
    alone: Callable[..., Agent], stuck: Stuck, kind: Callable[[Any], Quiet], others: int, expected: bool
) -> None:
    def tick(self: Quiet) -> None:
        self.turns += 2

    kinds = [type(f"Quiet{number}", (Quiet,), {"tick": tick}) for number in range(others)]

    def caller(get: Any) -> None:
        call = get.future(b"")
        entries = [Entry(one()) for one in kinds]
        entries.append(Entry(kind(call)))
        threading.Thread(target=run_all, args=(entries, stuck.go), name="timetable").start()
        call.result()

    assert ("-" in holders(look_at_caller(alone, stuck, caller))) is expected


def give_up() -> None:
    CURRENT.get().cancel()


@pytest.mark.parametrize("expected", [True, False], ids=["after", "before"])
def test_code_in_a_copy_of_a_context_reaches_the_contexts_values(
    alone: Callable[..., Agent], stuck: Stuck, expected: bool
) -> None:
    def caller(get: Any) -> None:
        contexts = [contextvars.copy_context()]
        call = get.future(b"")
        CURRENT.set(call)
        if expected:
            contexts.append(contextvars.copy_context())
        threading.Thread(target=reap, args=(contexts, stuck.go), name="reaper").start()
        call.result()

    def reap(contexts: list[contextvars.Context], go: threading.Event) -> None:
        if not go.wait(FAR_SECONDS):
            for context in contexts:
                context.run(give_up)

    assert ("-" in holders(look_at_caller(alone, stuck, caller))) is expected


class Registry:
    """Calls in progress."""

    def __init__(self, call: Any) -> None:
        self.calls = [call]


def expire(registry: Registry) -> None:
    for call in registry.calls:
        call.cancel()


def survey(registry: Registry) -> int:
    return len(registry.calls)


class Job:
    """A deferred action."""

    __slots__ = ("args", "fn")

    def __init__(self, fn: Callable[[Registry], object], *args: Registry) -> None:
        self.fn = fn
        self.args = args

    def run(self) -> None:
        self.fn(*self.args)


def run_tuple(jobs: list[Any]) -> None:
    for function, arguments in jobs:
        function(*arguments)


def run_dictionary(jobs: list[Any]) -> None:
    for job in jobs:
        job["fn"](job["arg"])


def run_object(jobs: list[Any]) -> None:
    for job in jobs:
        job.run()


JOBS: dict[str, tuple[Callable[..., Any], Callable[[list[Any]], None]]] = {
    "tuple": (lambda function, given: (function, (given,)), run_tuple),
    "dictionary": (lambda function, given: {"fn": function, "arg": given}, run_dictionary),
    "object": (Job, run_object),
}


@pytest.mark.parametrize(("function", "expected"), [(expire, True), (survey, False)])
@pytest.mark.parametrize("kind", JOBS)
def test_a_job_runner_ends_the_arguments_of_its_jobs(
    alone: Callable[..., Agent], stuck: Stuck, kind: str, function: Callable[[Registry], object], expected: bool
) -> None:
    make, run = JOBS[kind]

    def caller(get: Any) -> None:
        call = get.future(b"")
        jobs = [make(function, Registry(call))]
        threading.Thread(target=later, args=(jobs, run, stuck.go), name="runner").start()
        call.result()

    def later(jobs: list[Any], run: Callable[[list[Any]], None], go: threading.Event) -> None:
        if not go.wait(FAR_SECONDS):
            run(jobs)

    assert ("-" in holders(look_at_caller(alone, stuck, caller))) is expected


@pytest.mark.parametrize(("function", "expected"), [(expire, True), (survey, False)])
def test_a_thread_that_took_a_job_ends_the_jobs_arguments(
    alone: Callable[..., Agent], stuck: Stuck, function: Callable[[Registry], object], expected: bool
) -> None:
    def caller(get: Any) -> None:
        call = get.future(b"")
        jobs: SimpleQueue[Any] = SimpleQueue()
        jobs.put((function, (Registry(call),)))
        threading.Thread(target=work, args=(jobs, stuck.go), name="worker").start()
        call.result()

    def work(jobs: SimpleQueue[Any], go: threading.Event) -> None:
        function, arguments = jobs.get()
        if not go.wait(FAR_SECONDS):
            function(*arguments)

    assert ("-" in holders(look_at_caller(alone, stuck, caller))) is expected


class Inflight:
    """Calls in progress, notified about a dependency."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.changes = 0

    def fail(self, state: grpc.ChannelConnectivity) -> None:
        """Cancel them all."""
        if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
            for call in self.calls:
                call.cancel()

    def count(self, _: grpc.ChannelConnectivity) -> None:
        """Only count."""
        self.changes += len(self.calls)


@pytest.mark.parametrize(("act", "expected"), [(Inflight.fail, True), (Inflight.count, False)])
def test_a_connectivity_callback_may_cancel_the_call(
    alone: Callable[..., Agent], stuck: Stuck, act: Callable[..., None], expected: bool
) -> None:
    inflight = Inflight()
    subscriber = getattr(inflight, act.__name__)

    def caller(get: Any) -> None:
        call = get.future(b"")
        inflight.calls.append(call)
        call.result()

    with grpc.insecure_channel("127.0.0.1:1") as other:
        other.subscribe(subscriber, try_to_connect=False)
        assert ("-" in holders(look_at_caller(alone, stuck, caller))) is expected
        other.unsubscribe(subscriber)
