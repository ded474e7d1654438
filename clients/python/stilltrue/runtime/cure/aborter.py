"""Aborts the calls of deadlocked parties of this process at an operator's request.

Rules:

1. A party is aborted only if it is still in all of the waits listed in the request: a late cure does no harm.
2. The call that a victim serves ends with ABORTED and a message that names the incident. If a task serves it, the task is
   cancelled. A handler on a thread runs on, but its reply is discarded.
3. The call that a victim waits for is ended too, so that the victim goes on; if its request is queued, it leaves the queue.
4. Locks are never touched: a thread that waits for a lock stays there until the holder releases it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any

import grpc
import grpc.aio

from stilltrue.model import PartyName
from stilltrue.protocol.requests.cure import Cured, CureRequest, PartyCured
from stilltrue.protocol.requests.look import Suspect
from stilltrue.runtime import compat
from stilltrue.runtime.calls.incoming_call import IncomingCall
from stilltrue.runtime.introspection.frames import frame_of
from stilltrue.runtime.introspection.tasks import Task
from stilltrue.runtime.introspection.threads_and_tasks import Place, Places, served_by
from stilltrue.runtime.locked_recorder import LockedRecorder
from stilltrue.runtime.look.suspects import handles_of
from stilltrue.runtime.parties import Parties

LOOP_SECONDS_MAX = 1.0
"""Longest wait for an event loop to cancel a task."""
DEPTH_MAX = 12
"""How many of a thread's innermost frames are searched for gRPC's."""
GONE_ON = "it went on by itself before"
Done = tuple[bool, str]
"""Whether anything was aborted, and what was done or why nothing was."""
InForce = Callable[[Iterable[Suspect]], tuple[int, dict[PartyName, float | None]]]


class Aborter:
    """Carries out cures in one process."""

    def __init__(self, live: LockedRecorder, parties: Parties, in_force: InForce) -> None:
        """``in_force`` returns which suspects are in all of their waits at this instant."""
        self._live = live
        self._parties = parties
        self._in_force = in_force

    def cure(self, request: CureRequest) -> Cured:
        """Abort the victims. Never raises."""
        text = f"aborted to end incident {request.incident} (stilltrue cure)"
        return Cured(number=request.number, parties=tuple(self._cure_party(victim, text) for victim in request.victims))

    def _cure_party(self, victim: Suspect, text: str) -> PartyCured:
        try:
            aborted, did = self._abort(victim, text)
        except Exception as error:  # noqa: BLE001 - fail open
            self._live.report_failure("aborting calls for a cure")
            aborted, did = False, f"it could not be aborted: {error!r}"
        return PartyCured(party=victim.party, aborted=aborted, text=did)

    def _abort(self, victim: Suspect, text: str) -> Done:
        place = Places(self._parties).find(victim.party)
        if not self._still_waits(victim):
            return False, GONE_ON
        if place is None:
            return False, "its thread or task cannot be found"
        if place.task is not None and not place.ident:
            return self._cancel_task(place, place.task, victim, text)
        return _abort_thread(place, text)

    def _still_waits(self, victim: Suspect) -> bool:
        """Rule 1."""
        return bool(victim.waits) and victim.party in self._in_force((victim,))[1]

    def _cancel_task(self, place: Place, task: Task, victim: Suspect, text: str) -> Done:
        """Apply rules 1 and 2 on the task's own loop, where the task cannot go on in between."""
        call, answer = _call_of(place), Future[Done]()

        def cancel() -> None:
            if not answer.set_running_or_notify_cancel():
                return  # the cure has timed out
            if task.done() or not self._still_waits(victim):
                answer.set_result((False, GONE_ON))
                return
            if call is not None:
                call.aborted = text
            task.cancel(text)
            answer.set_result((True, "its task was cancelled" if call is None else "its call was ended with ABORTED"))

        task.get_loop().call_soon_threadsafe(cancel)
        try:
            return answer.result(LOOP_SECONDS_MAX)
        except TimeoutError:
            if answer.cancel():
                return False, f"its event loop did not answer within {LOOP_SECONDS_MAX:g} s"
            return answer.result()


def _abort_thread(place: Place, text: str) -> Done:
    """Apply rules 2 to 4 to a thread."""
    call, did = _call_of(place), []
    if call is not None:
        call.aborted = text
        if compat.abort_served(place.context, text):
            did.append("its call was ended with ABORTED")
    waiting = [compat.cancel_awaited(frame, text) for frame in place.frames[:DEPTH_MAX]]
    if any(waiting) or _cancel_handles(place):
        did.append("the call that it waits for was ended")
    elif did:
        did.append(f"its thread stays at {place.stack()[0]} until its wait there ends")
    if not did:
        return False, f"it serves no call and waits for none; it is at {place.stack()[0]}"
    return True, ", and ".join(did)


def _cancel_handles(place: Place) -> bool:
    calls = [one for one in handles_of(place) if isinstance(one, grpc.Call) and not isinstance(one, grpc.aio.Call)]
    return any(one.cancel() for one in calls)


def _call_of(place: Place) -> IncomingCall | None:
    """The call served at ``place``, as the shells keep it."""
    if place.serves is None:
        return None
    frames: list[Any] = list(place.frames)
    if place.task is not None:
        frames += filter(None, map(frame_of, compat.await_chain(place.task.get_coro())))
    call, _ = served_by(frames)
    return call if call is not None and call.served is place.serves else None
