"""The parties that alone may read a stream of a call whose other end may be full.

Rules:

1. A thread that serves a call and writes a reply reads the call's requests if it alone can reach gRPC's iterator of them.
2. A thread reads the replies of a call if it alone can reach the call object, and if it waits for the thread that feeds the
   call's requests. While that thread writes a request, the second look at it finds who may end the call.
3. The agent's own thread proves this (:mod:`~stilltrue.runtime.waits.reachability.references.thread_reach`). A proof is valid
   while the reader has not run, for nobody else can get what only it has. If the proof fails, it is tried again after twice
   the time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from stilltrue.model import PartyName
from stilltrue.protocol.report import Hold, room_for_reply_of, room_for_request_of
from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import innermost_frames_of_others
from stilltrue.runtime.own_ref import OwnRef
from stilltrue.runtime.waits.call_stack import where_is
from stilltrue.runtime.waits.process_view import LiveProcessView
from stilltrue.runtime.waits.reachability.thread_waits import (
    AGAIN_SECONDS,
    AGAIN_SECONDS_MAX,
    CANDIDATES_MAX,
    SEARCH_SECONDS_MAX,
    SHARE_OF_TIME,
    reached_by_themselves,
)
from stilltrue.runtime.waits.streams.writes import are_there_writes, reply_written, request_written
from stilltrue.runtime.waits.wait import CallStack


@dataclass(frozen=True, slots=True, eq=False)
class _Reader:
    """The thread that may read from ``source``, where it is, and whether it was proved that only this thread can."""

    ident: int
    source: OwnRef
    where: tuple[object, ...]
    due: float
    again: float = AGAIN_SECONDS
    proved: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class _Reading:
    """A party whose thread may read from ``source`` at a cut, and the resource that it holds if it alone may."""

    ident: int
    party: PartyName
    source: Any
    resource: str


class StreamReaders:
    """The readers of one process."""

    def __init__(self) -> None:
        self._readers: dict[int, _Reader] = {}
        self._not_before = 0.0

    def holds(self, view: LiveProcessView) -> tuple[Hold, ...]:
        """The room for the other ends' next items that proved readers hold at a cut."""
        if not are_there_writes(view):
            self._readers = {}
            return ()
        now, before, found, holds = time.monotonic(), self._readers, dict[int, _Reader](), []
        for one in (*_reading_requests(view), *_reading_replies(view)):
            where, known = view.where_now(one.ident), before.get(one.ident)
            if known is None or known.source() is not one.source or known.where != where:
                known = _Reader(one.ident, OwnRef(one.source), where, now)
            if len(found) < CANDIDATES_MAX:
                found[one.ident] = known
            if known.proved:
                holds.append(Hold(party=one.party, resource=one.resource))
        self._readers = found
        return tuple(holds)

    def search(self) -> None:
        """Try the proofs that are due, within the share of time for them, on the agent's own thread (rule 3)."""
        now = time.monotonic()
        due = [one for one in self._readers.values() if not one.proved and one.due <= now] if now >= self._not_before else []
        if not due:
            return
        begun = time.thread_time()
        alone = reached_by_themselves({one.ident: one.source for one in due}, begun + SEARCH_SECONDS_MAX)
        frames = innermost_frames_of_others()
        for one in due:
            if self._readers.get(one.ident) is one:
                proved = one.ident in alone and where_is(one.ident, frames.get(one.ident)) == one.where
                again = min(2 * one.again, AGAIN_SECONDS_MAX)
                self._readers[one.ident] = replace(one, due=now + again, again=again, proved=proved)
        self._not_before = now + (time.thread_time() - begun) / SHARE_OF_TIME


def _reading_requests(view: LiveProcessView) -> Iterator[_Reading]:
    """Rule 1."""
    for stack in view.stacks().values():
        call = reply_written(stack.frames)
        if call is None or call.served.caller is None or call.session.parties.process != view.process:
            continue
        served, source = call.served, compat.requests_read(stack.frames)
        if served.caller is not None and source is not None:
            resource = room_for_request_of(served.caller.process, served.number)
            yield _Reading(stack.ident, served.party, source, resource)


def _reading_replies(view: LiveProcessView) -> Iterator[_Reading]:
    """Rule 2."""
    for stack in view.stacks().values():
        call = request_written(stack.frames)
        if call is None or call.made.handle is None or call.session.parties.process != view.process:
            continue
        source, resource = call.made.handle(), room_for_reply_of(view.process, call.made.number)
        for ident in _waiting_for(stack, view) if source is not None else ():
            party = view.party_of(ident)
            if party is not None:
                yield _Reading(ident, party, source, resource)


def _waiting_for(feeding: CallStack, view: LiveProcessView) -> Iterator[int]:
    """The threads that wait for the thread that feeds."""
    for ident, stack in view.stacks().items():
        wait = view.wait_of(stack)
        if wait is not None and feeding.ident in (wait.enders or ()):
            yield ident
