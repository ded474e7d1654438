"""Waits for a future that a party is bound to complete: the first caller of a single flight, an actor that owes a reply.

Rules:

1. The wait is for each party with a frame that is bound to complete the future
   (:mod:`~stilltrue.runtime.waits.futures.completions`), and for each that will read it from a mailbox
   (:mod:`~stilltrue.runtime.waits.futures.mailboxes`). Without one nothing is known.
2. Any other party that can reach it and whose code mentions completing it is a way out, which the second look searches for. A
   method of a server that completes only futures of its own (:mod:`~stilltrue.runtime.waits.futures.own_futures`) is not.
   What is in a mailbox may be taken out and given to somebody else: so any other party that can reach the mailbox and may take
   items out of queues (:mod:`~stilltrue.runtime.waits.holders.queues.queue_operations`) is a way out, too.
3. A task that is cancelled cancels the future that it awaits, if it does not shield it: so the wait is also for the other tasks
   that await it. Nothing is known of a future with any other callback: it may be chained to another future.
4. A task that gathers futures waits for a party that is to complete one of them, or for one of the gathered tasks. If it needs
   all of them, for one that is to complete the first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from types import CodeType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.tasks import Awaited, is_of_gathering, is_of_shield, read
from stilltrue.runtime.look.code.attributes import attribute_of
from stilltrue.runtime.look.code.names import words_in
from stilltrue.runtime.waits.ending_operations import COMPLETING
from stilltrue.runtime.waits.futures.completions import bound_to_complete, may_complete
from stilltrue.runtime.waits.futures.mailboxes import awaiting_completion
from stilltrue.runtime.waits.futures.own_futures import completes_only_own
from stilltrue.runtime.waits.holders.queues.queue_operations import OPENS_QUEUES, TAKES_ITEMS, depended_on, queue_operations
from stilltrue.runtime.waits.wait import CallStack, Ender, ProcessView, Resolver, SeenWait, Task

_WHAT = "a future that {} is to complete"
_CANCELLING = COMPLETING | {"cancel"}
_TAKING = frozenset({TAKES_ITEMS, OPENS_QUEUES})


def wait_for_completers(future: Any, stack: CallStack, view: ProcessView) -> SeenWait | None:
    """The wait of the party with this stack for a future; None if no party is known to be bound to complete it."""
    completers = _all_completers(view).get(id(future))
    known = () if completers is None else tuple(one for one in completers.who if one != stack.who)
    others = _others_awaiting(future, stack, view) if known else None
    if completers is None or others is None:
        return None
    mailboxes = tuple(completers.mailboxes)
    if mailboxes:
        depended_on.set()
    return SeenWait(
        on=future,
        enders=tuple(dict.fromkeys((*known, *others))),
        what=_WHAT,
        once=True,
        handles=() if future is stack.future or stack.task is None else (future,),
        ended_through=(future, *mailboxes),
        ending_names=_CANCELLING | _TAKING if mailboxes else _CANCELLING,
        has_own_share=_completes_own_and_takes_nothing if mailboxes else completes_only_own,
    )


def _others_awaiting(future: Any, stack: CallStack, view: ProcessView) -> tuple[Task, ...] | None:
    """The other tasks whose cancellation cancels a future (rule 3); None if that may happen otherwise."""
    if issubclass(type(future), Future):
        return None if attribute_of(future, "_done_callbacks") else ()
    awaiting = view.cached(_others_awaiting, lambda: _tasks_by_future(view)).get(id(future), [])
    every = (callback for callback, _ in compat.callbacks_of(future))
    callbacks = [one for one in every if not (is_of_shield(one) or is_of_gathering(one, stack.future))]
    return None if len(callbacks) > len(awaiting) else tuple(one for one in awaiting if one is not stack.task)


def _tasks_by_future(view: ProcessView) -> Mapping[int, list[Task]]:
    """The tasks that await a future, by its identity."""
    found: dict[int, list[Task]] = {}
    for task, one in view.stacks_of_tasks().items():
        if one.future is not None:
            found.setdefault(id(one.future), []).append(task)
    return found


def _completes_own_and_takes_nothing(codes: Sequence[CodeType]) -> bool:
    return completes_only_own(codes) and not any(queue_operations(code, words_in(code)) for code in codes)


@dataclass(slots=True)
class _Completers:
    """The parties that are to complete a future (rule 1), and the mailboxes that it is in."""

    future: Any
    who: dict[Ender, None] = field(default_factory=dict)
    mailboxes: list[Any] = field(default_factory=list)


def _all_completers(view: ProcessView) -> Mapping[int, _Completers]:
    """By the identity of the future."""
    return view.cached(__name__, lambda: _completers(view))


def _completers(view: ProcessView) -> Mapping[int, _Completers]:
    found: dict[int, _Completers] = {}
    for stack in (*view.stacks().values(), *view.stacks_of_tasks().values()):
        for frame in stack.frames:
            if not may_complete(frame.f_code):
                continue
            for thing, *mailboxes in (*((one,) for one in bound_to_complete(frame)), *awaiting_completion(frame)):
                if is_plain(thing):
                    completers = found.setdefault(id(thing), _Completers(thing))
                    completers.who[stack.who] = None
                    completers.mailboxes += mailboxes
    return found


def is_plain(thing: Any) -> bool:
    """Whether it is a future that is neither done, nor a task, nor completed by another future."""
    if issubclass(type(thing), Future):
        return not compat.is_finished(thing) and compat.source_of(thing) is None
    plain = issubclass(type(thing), asyncio.Future) and not compat.is_task(thing) and not compat.is_gathering(thing)
    return plain and not thing.done() and compat.source_of(thing) is None


def _read_task(stack: CallStack, _: int, view: ProcessView) -> SeenWait | None:
    """A task that awaits a future, or a shield of it."""
    if stack.task is None or stack.future is None or compat.is_task(stack.future) or not _all_completers(view):
        return None
    awaited = read(stack.task, stack.future)
    if awaited is None:
        return wait_for_completers(stack.future, stack, view)
    shielded = tuple(awaited.shielded)
    if awaited.until is not None or not (awaited.futures == shielded[:1] or compat.is_gathering(stack.future)):
        return None
    return wait_for_completers(shielded[0], stack, view) if shielded else _of_gathered(awaited, stack, view)


def _of_gathered(awaited: Awaited, stack: CallStack, view: ProcessView) -> SeenWait | None:
    """Rule 4."""
    plain = [one for one in awaited.futures if not compat.is_task(one)]
    found = [wait_for_completers(one, stack, view) for one in plain]
    known = [one for one in found if one is not None]
    if not known or len(known) < len(plain):
        return None
    known = known[:1] if awaited.needs_all else known
    tasks = [] if awaited.needs_all else [one for one in awaited.futures if compat.is_task(one)]
    shares = [one.has_own_share for one in known]
    return replace(
        known[0],
        on=stack.future,
        enders=tuple(dict.fromkeys((*tasks, *(ender for one in known for ender in one.enders or ())))),
        handles=tuple(handle for one in known for handle in one.handles),
        ended_through=tuple(thing for one in known for thing in one.ended_through),
        ending_names=frozenset().union(*(one.ending_names for one in known)),
        has_own_share=next((one for one in shares if one is not completes_only_own), completes_only_own),
    )


RESOLVERS = (Resolver((), _read_task),)
