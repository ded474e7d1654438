"""The threads that feed the request streams of calls: the other end, which waits for the next request, waits for one of them.

gRPC runs the application's request iterator in a thread of its own. Such a thread is reported while it is itself in a known
wait; otherwise it may send at any moment.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stilltrue.model import ProcessName
from stilltrue.protocol.report import Hold, next_request_of
from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.origins import feeds_requests, is_ours
from stilltrue.runtime.look.code.attributes import attribute_of
from stilltrue.runtime.waits.process_view import LiveProcessView
from stilltrue.runtime.waits.wait import CallStack


def holds(view: LiveProcessView, process: ProcessName) -> Iterable[Hold]:
    """The parties that feed requests at a cut; ``process``: this one."""
    for stack in view.stacks().values():
        if any(map(compat.is_feeding, stack.frames)):
            number = _number_of(stack)
            party = view.party_of(stack.who) if number is not None and _may_wait(stack, view) else None
            if party is not None and number is not None:
                yield Hold(party=party, resource=next_request_of(process, number))


def _may_wait(stack: CallStack, view: LiveProcessView) -> bool:
    """Whether a thread is in a known wait, or in one of our shells, which record theirs. Asking for its party names it."""
    wait = view.wait_of(stack)
    known = wait is not None and wait.enders is not None
    return known or any(is_ours(frame.f_code) and not feeds_requests(frame.f_code) for frame in stack.frames)


def _number_of(stack: CallStack) -> Any:
    """The number of the call whose requests a thread feeds."""
    for frame in stack.frames:
        if feeds_requests(frame.f_code):
            call = attribute_of(variables_of(frame).get("self"), "_call")
            number = getattr(attribute_of(call, "made"), "number", None)
            return number if isinstance(number, int) else None
    return None
