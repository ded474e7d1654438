"""The threads and tasks that feed the request streams of calls: the other end waits for one of them.

gRPC runs the application's request iterator in a thread or a task of its own. Such a thread or task is reported while it is
itself in a known wait; otherwise it may send at any moment. Beneath interceptors of ``grpc.aio``, what the application writes
comes from an iterator of gRPC's, which first waits until the interceptors have returned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from stilltrue.model import ProcessName
from stilltrue.protocol.report import Hold, next_request_of
from stilltrue.runtime import compat
from stilltrue.runtime.calls.outgoing_call import OutgoingCall
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.origins import feeds_requests, is_ours
from stilltrue.runtime.introspection.tasks import read
from stilltrue.runtime.look.code.attributes import attribute_of
from stilltrue.runtime.waits.process_view import LiveProcessView
from stilltrue.runtime.waits.streams.calls_of_tasks import call_fed_in, is_fed_in
from stilltrue.runtime.waits.streams.intercepted import number_of
from stilltrue.runtime.waits.wait import CallStack, Task


def holds(view: LiveProcessView, process: ProcessName) -> Iterable[Hold]:
    """The parties that feed requests at a cut; ``process``: this one."""
    for stack in view.stacks().values():
        if any(map(compat.is_feeding, stack.frames)):
            number = _number_of(stack)
            party = view.party_of(stack.who) if number is not None and _may_wait(stack, view) else None
            if party is not None and number is not None:
                yield Hold(party=party, resource=next_request_of(process, number))
    for task, call in tasks(view).items():
        party = view.party_of(task) if _may_wait(view.stacks_of_tasks()[task], view) else None
        if party is not None:
            yield Hold(party=party, resource=next_request_of(process, call.made.number))
    for task, stack in view.stacks_of_tasks().items():
        core = compat.call_fed_by(stack.frames)
        number = number_of(core, process) if compat.feeder_of(core) is task and task not in tasks(view) else None
        party = view.party_of(task) if number is not None and _may_wait(stack, view) else None
        if party is not None and number is not None:
            yield Hold(party=party, resource=next_request_of(process, number))


def tasks(view: LiveProcessView) -> Mapping[Task, OutgoingCall]:
    """The suspended tasks that feed requests, each with the call."""
    return view.cached("feeders", lambda: _find_tasks(view))


def _find_tasks(view: LiveProcessView) -> dict[Task, OutgoingCall]:
    found = ((task, call_fed_in(stack.frames)) for task, stack in view.stacks_of_tasks().items())
    return {task: call for task, call in found if call is not None and _feeds(task, call, view)}


def _feeds(task: Task, call: OutgoingCall, view: LiveProcessView) -> bool:
    """Whether gRPC runs ``task`` for the requests of ``call``, a call of this agent; not so behind interceptors."""
    core = None if call.made.handle is None else call.made.handle()
    return core is not None and compat.feeder_of(core) is task and call.session.parties.process == view.process


def _may_wait(stack: CallStack, view: LiveProcessView) -> bool:
    """Whether it is in a known wait, or in one of our shells, which record theirs. Asking for its party names it."""
    task = stack.task
    wait = view.wait_of(stack) if task is None else view.wait_of_task(task)
    known = (wait is not None and wait.enders is not None) or (task is not None and read(task, stack.future) is not None)
    return known or any(is_ours(one.f_code) and not (feeds_requests(one.f_code) or is_fed_in(one)) for one in stack.frames)


def _number_of(stack: CallStack) -> Any:
    """The number of the call whose requests a thread feeds."""
    for frame in stack.frames:
        if feeds_requests(frame.f_code):
            call = attribute_of(variables_of(frame).get("self"), "_call")
            number = getattr(attribute_of(call, "made"), "number", None)
            return number if isinstance(number, int) else None
    return None
