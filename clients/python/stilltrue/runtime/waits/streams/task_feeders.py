"""The tasks that may write the next request of a ``grpc.aio`` call: the other end, which reads it, waits for one of them.

Rules:

1. A task that awaits a reply of a call, made without a request iterator, may write the requests as well, and so may any
   other task that can reach the call.
2. The agent's own thread proves that only suspended tasks can (:mod:`~stilltrue.runtime.waits.reachability.task_reach`), apart
   from the two tasks in which gRPC serves the call. The proof is valid while none of these tasks has moved, as no other party
   can get the call. If it fails, it is tried again after twice the time.
3. Each of these tasks must be a party. One that is in no known wait may write at any moment, as may any other such party.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from stilltrue.protocol.report import Hold, next_request_of
from stilltrue.runtime import compat
from stilltrue.runtime.calls.outgoing_call import OutgoingCall
from stilltrue.runtime.introspection.tasks import blocking_future
from stilltrue.runtime.look.budget import Budget
from stilltrue.runtime.own_ref import OwnRef
from stilltrue.runtime.waits.process_view import LiveProcessView
from stilltrue.runtime.waits.reachability.task_reach import reached_by, references_from
from stilltrue.runtime.waits.reachability.task_waits import (
    AGAIN_SECONDS,
    AGAIN_SECONDS_MAX,
    CANDIDATES_MAX,
    LOOK_SECONDS_MAX,
    SHARE_OF_TIME,
    TASKS_MAX,
)
from stilltrue.runtime.waits.streams.calls_of_tasks import call_read_in
from stilltrue.runtime.waits.wait import Task


@dataclass(frozen=True, slots=True, eq=False)
class _Writers:
    """The tasks that can reach ``call`` (gRPC's own object), each with the future it awaits, once this is proved."""

    call: OwnRef
    due: float
    again: float = AGAIN_SECONDS
    tasks: tuple[tuple[OwnRef, OwnRef], ...] = ()

    def proved(self) -> list[Task]:
        """These tasks, if none has moved since; none if it is unknown which they are (rule 2)."""
        found = []
        for task, future in self.tasks:
            writer, awaited = task(), future()
            if writer is None or awaited is None or blocking_future(writer) is not awaited:
                return []
            found.append(writer)
        return found


class TaskFeeders:
    """The tasks of one process that may write requests."""

    def __init__(self) -> None:
        self._writers: dict[int, _Writers] = {}
        self._loops: tuple[Any, ...] = ()
        self._not_before = 0.0

    def holds(self, view: LiveProcessView) -> list[Hold]:
        """The parties that may write the next requests of calls, at a cut."""
        now, before, found, holds = time.monotonic(), self._writers, dict[int, _Writers](), list[Hold]()
        loops: dict[Any, None] = {}
        for task, stack in view.stacks_of_tasks().items():
            call = call_read_in(stack.frames)
            core = None if call is None or call.session.parties.process != view.process else _written_to(call)
            if call is None or core is None or len(found) >= CANDIDATES_MAX:
                continue
            known, loops[task.get_loop()] = before.get(id(core)), None
            if known is None or known.call() is not core:
                known = _Writers(OwnRef(core), now)
            found[id(core)] = known
            parties = [view.party_of(one) for one in known.proved()]
            resource = next_request_of(view.process, call.made.number)
            holds += [] if None in parties else [Hold(party=one, resource=resource) for one in parties if one is not None]
        self._writers, self._loops = found, tuple(loops)
        return holds

    def tasks(self) -> set[Task]:
        """The tasks that may write requests, as of the newest cut: the calls' other ends depend on them."""
        return {task for one in self._writers.values() for task in one.proved()}

    def search(self) -> None:
        """Try the proofs that are due, within the share of time for them, on the agent's own thread (rule 2)."""
        now = time.monotonic()
        due = {key: one for key, one in self._writers.items() if one.due <= now and not one.proved()}
        if not due or now < self._not_before:
            return
        begun = time.thread_time()
        tasks = [task for loop in self._loops for task in compat.tasks_of(loop) or ()]
        if len(tasks) <= TASKS_MAX:
            before = {id(task): future for task in tasks if (future := blocking_future(task)) is not None}
            found = references_from(tasks, Budget(LOOK_SECONDS_MAX))
            for key, one in due.items():
                again = min(2 * one.again, AGAIN_SECONDS_MAX)
                reaching = reached_by(key, found, compat.is_call_registry_ref)
                call = one.call()
                writers = [task for task in reaching or () if not compat.serves_call(task, call)]
                if self._writers.get(key) is one:
                    self._writers[key] = replace(one, due=now + again, again=again, tasks=_still(writers, before))
        self._not_before = now + (time.thread_time() - begun) / SHARE_OF_TIME


def _still(tasks: list[Task], before: Mapping[int, Any]) -> tuple[tuple[OwnRef, OwnRef], ...]:
    """The tasks, each with the future that it awaited ``before`` and still awaits; none if one has moved."""
    if not all(id(task) in before and blocking_future(task) is before[id(task)] for task in tasks):
        return ()
    return tuple((OwnRef(task), OwnRef(before[id(task)])) for task in tasks)


def _written_to(call: OutgoingCall) -> Any:
    """GRPC's own object of a call whose requests are written by the application's tasks; None for others."""
    core = None if call.made.handle is None else call.made.handle()
    return core if compat.is_written_to(core) else None
