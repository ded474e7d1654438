"""Evaluates predicates off the event loop, each on its own thread, so that one that fails or hangs does not affect others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from queue import SimpleQueue
from typing import Any, TypeVar

from detector.core.predicate import Predicate
from detector.core.registry import (
    PluginError,
    UnusablePredicate,
    ask,
    depends_on_idleness,
    may_depend_on_idleness,
    predicate_names,
    predicate_or_unusable,
)
from detector.core.snapshot import Snapshot
from detector.core.undetermined import undetermined
from detector.core.verification.suspicion import idle_of
from detector.ops.logs import Log
from detector.service.metrics import Metrics
from stilltrue.model import Verdict

Answer = TypeVar("Answer")

_Job = tuple[Callable[[], Any], "asyncio.Future[Any]"]


class WorkerThread:
    """A thread that runs jobs in turn. It is a daemon, so that a job that hangs does not keep the process from exiting."""

    def __init__(self, name: str) -> None:
        """``name``: the thread's name."""
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], Answer]) -> asyncio.Future[Answer]:
        """Queue ``job``; it is skipped if its future is cancelled before its turn."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._jobs.put((job, future))
        return future

    def close(self) -> None:
        """Stop after the queued jobs."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (work := self._jobs.get()) is not None:
            job, future = work
            if future.cancelled():
                continue
            try:
                _settle(future, job(), None)
            except Exception as error:  # noqa: BLE001 - a plug-in's error must fail its answer, not us
                _settle(future, None, error)


def _settle(future: asyncio.Future[Any], answer: object, error: Exception | None) -> None:
    def deliver() -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(answer)

    try:
        future.get_loop().call_soon_threadsafe(deliver)
    except RuntimeError:  # the loop is closed: nothing awaits the answer
        return


def installed_predicates(settings: Mapping[str, Mapping[str, Any]], log: Log) -> list[Predicate]:
    """Every installed predicate, with its ``settings``; one that cannot be created fails at each evaluation."""
    predicates = [predicate_or_unusable(name, settings.get(name)) for name in predicate_names()]
    for one in predicates:
        if isinstance(one, UnusablePredicate):
            log.warning("predicate unusable", predicate=one.name, reason=str(one.reason))
    return predicates


class Evaluator:
    """All predicates, ready to evaluate snapshots."""

    def __init__(self, predicates: Sequence[Predicate], *, seconds_max: float, metrics: Metrics, log: Log) -> None:
        """``seconds_max``: time limit for one predicate on one snapshot."""
        self._predicates: Mapping[str, Predicate] = {predicate.name: predicate for predicate in predicates}
        self._seconds_max = seconds_max
        self._metrics = metrics
        self._log = log
        self._logged: dict[str, str] = {}
        self._workers = {name: WorkerThread(f"stilltrue-{name}") for name in self._predicates}

    @property
    def names(self) -> tuple[str, ...]:
        """The predicates' names, sorted."""
        return tuple(sorted(self._predicates))

    async def verdict(self, name: str, snapshot: Snapshot) -> Verdict:
        """Evaluate the predicate ``name``. Never raises: a failure gives UNDETERMINED, with the reason."""
        predicate = self._predicates[name]
        try:
            answer = self._workers[name].submit(lambda: ask(predicate, snapshot))
            verdict = await asyncio.wait_for(answer, self._seconds_max)
            self._logged.pop(name, None)
            return replace(verdict, predicate=name, snapshot=snapshot.ref)
        except TimeoutError:
            text = f"the predicate {name} took longer than {self._seconds_max:g} s on snapshot {snapshot.ref.id}"
            self._log.warning("predicate overran", predicate=name, snapshot=snapshot.ref.id, seconds_max=self._seconds_max)
            reason = "overrun"
        except PluginError as error:
            text = str(error)
            if self._logged.get(name) != text:  # each snapshot may fail alike; the metric counts them all
                self._logged[name] = text
                self._log.failure("predicate failed", error, predicate=name, snapshot=snapshot.ref.id)
            reason = "failed"
        self._metrics.predicate_failed(name, reason)
        return undetermined(name, snapshot.ref, reason, text)

    async def depends_on_idleness(self, name: str, snapshot: Snapshot, verdict: Verdict) -> bool:
        """Whether ``verdict`` is TRUE only because processes seem idle; also True if that is unknown."""
        idle = idle_of(snapshot)
        predicate = self._predicates[name]
        if not idle or not may_depend_on_idleness(predicate, verdict):
            return False
        try:
            answer = self._workers[name].submit(lambda: depends_on_idleness(predicate, snapshot, verdict, idle))
            return await asyncio.wait_for(answer, self._seconds_max)
        except (TimeoutError, PluginError):
            return True

    def close(self) -> None:
        """Stop starting evaluations."""
        for worker in self._workers.values():
            worker.close()
