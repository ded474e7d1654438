"""Queues as pools: a party that takes a connection, a token or a worker out of a queue, and puts it back.

Rules:

1. A party has an item of a queue from ``item = queue.get()`` until ``queue.put(...)`` of the same expression, if its function
   has taken one on every path so far, and puts one back on every path that returns. Its bytecode shows whether a frame is
   between the two.
2. A party that waits without a timeout for an item of an empty queue waits for one of those that have one.
3. Any other party that can reach the queue, and whose code may put something into it or use its contents, is a way out. Code
   that only puts back what it has taken itself does not count: it has to take an item of the empty queue first. So does a
   server's method, with all that it may run.
"""

from __future__ import annotations

import asyncio
import inspect
import queue
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.origins import is_application, is_own_code
from stilltrue.runtime.look.code.attributes import UNKNOWN, attribute_of
from stilltrue.runtime.look.code.lookups import COMPUTED, looked_up
from stilltrue.runtime.look.code.names import ATTRIBUTES, words_in
from stilltrue.runtime.waits.futures.completions import call_of
from stilltrue.runtime.waits.futures.mailboxes import stored_after
from stilltrue.runtime.waits.holders.own_shares import COMPUTING
from stilltrue.runtime.waits.holders.queue_operations import (
    GET,
    GET_NOWAIT,
    OPENS_QUEUES,
    depended_on,
    is_of_queue,
    queue_operations,
)
from stilltrue.runtime.waits.holders.with_blocks import Expression, expression_before, instructions_of, value_of
from stilltrue.runtime.waits.orphaned_locks.balance import ACQUIRES, MAY_ACQUIRE, RELEASES, balance_of
from stilltrue.runtime.waits.orphaned_locks.census import codes_within
from stilltrue.runtime.waits.resolvers.locks import WAITS
from stilltrue.runtime.waits.wait import CallStack, ProcessView, Resolver, SeenWait

PUTS = frozenset({"put", "put_nowait"})
GIVES_ITEMS = "gives items"
"""Among the names of code: it may put into a queue what it has not taken out of it. No identifier contains a space."""
_OTHERWISE = frozenset({"shutdown", "_put", "_wakeup_next"})
"""What a queue's own ``put()`` calls, and what ends all waits for its items."""
_ENDING = _OTHERWISE | {GIVES_ITEMS, OPENS_QUEUES}
_SUSPENDS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_NOT_UNDERSTOOD = frozenset[Expression]({()})
_CONTENTS = {
    **dict.fromkeys((queue.Queue, queue.LifoQueue, queue.PriorityQueue), "queue"),
    **dict.fromkeys((asyncio.Queue, asyncio.LifoQueue, asyncio.PriorityQueue), "_queue"),
}


@dataclass(frozen=True, slots=True)
class _Uses:
    """How a code object uses queues.

    ``sure``, ``held``: by expression, the offsets at which it has surely, or perhaps, taken an item and not put it back.
    ``unowned``: those into which it may put what it has not taken out of them; empty: not understood.
    """

    sure: Mapping[Expression, frozenset[int]] = field(default_factory=dict)
    held: Mapping[Expression, frozenset[int]] = field(default_factory=dict)
    unowned: frozenset[Expression] = frozenset()


@cached_by_code
def _uses(code: CodeType) -> _Uses:
    """Rule 1, without the functions within the code."""
    said = any(type(one) is str and one in PUTS for one in code.co_consts)
    if said or PUTS.isdisjoint(code.co_names):
        return _Uses(unowned=_NOT_UNDERSTOOD if said else frozenset())
    every = instructions_of(code)
    effects: dict[Expression, dict[int, str]] = {}
    for index, one in enumerate(every):
        if one.argval in PUTS:
            expression = expression_before(every, index) if one.opname in ATTRIBUTES else ()
            if not expression or call_of(every, index) is None:
                return _Uses(unowned=_NOT_UNDERSTOOD)
            effects.setdefault(expression, {})[index] = RELEASES
        elif one.opname in ATTRIBUTES and (one.argval == GET_NOWAIT or (one.argval == GET and is_of_queue(code, index))):
            expression, call = expression_before(every, index), call_of(every, index)
            parts, stored = stored_after(every, call) if call is not None else ({}, index)
            effects.setdefault(expression, {})[stored] = ACQUIRES if parts else MAY_ACQUIRE
    putting = [(one, those) for one, those in effects.items() if RELEASES in those.values()]
    balances = [(one, balance_of(code, those, (one,))) for one, those in putting]
    return _Uses(
        sure={one: balance.sure for one, balance in balances if balance.sure is not None and not balance.unowned},
        held={one: balance.held for one, balance in balances},
        unowned=frozenset(one for one, balance in balances if balance.unowned),
    )


@cached_by_code
def puts_only_own(code: CodeType) -> bool:
    """Whether a code object, and the functions within it, only put back what they have taken themselves."""
    return not any(_uses(one).unowned for one in codes_within(code))


def gives_items(code: CodeType, words: frozenset[str]) -> bool:
    """Whether application code that uses these ``words`` may put into a queue what it has not taken out of it.

    One that may be suspended in between, such as the generator of a context manager, may have taken it already.
    """
    if not is_application(code):
        return False
    by_text = is_own_code(code) and COMPUTED in looked_up(code)
    return by_text or (not PUTS.isdisjoint(words) and (bool(code.co_flags & _SUSPENDS) or not puts_only_own(code)))


def called_by(names: frozenset[str]) -> frozenset[str]:
    """Names of operations, with those of the methods of queues that a callback may be itself (``Timer(1, pool.put)``)."""
    return names | PUTS if GIVES_ITEMS in names else names


def has_taken_nothing(frame: FrameType) -> bool:
    """Whether a frame has yet to take everything that it, and the functions within it, put back."""
    code = frame.f_code
    return puts_only_own(code) and not any(frame.f_lasti in offsets for offsets in _uses(code).held.values())


@cached_by_code
def may_have_taken(code: CodeType) -> bool:
    """Whether a frame of this code may have taken an item that it will put back."""
    return is_application(code) and bool(_uses(code).sure)


def taken_in(frame: FrameType) -> Iterator[Any]:
    """The queues of which a frame has an item."""
    if not may_have_taken(frame.f_code):
        return
    here = [one for one, offsets in _uses(frame.f_code).sure.items() if frame.f_lasti in offsets]
    names = variables_of(frame) if here else {}
    every = (value_of(one, names, frame.f_globals) for one in here)
    yield from (one for one in every if type(one) in _CONTENTS)


def is_pool(thing: Any) -> bool:
    """Whether it is a queue of which a party may have an item."""
    return type(thing) in _CONTENTS


def may_have_put(frame: FrameType, pool: Any) -> bool:
    """Whether a frame may have put something into a queue that it has not taken out of it."""
    code = frame.f_code
    if not is_application(code) or puts_only_own(code):
        return False
    names = variables_of(frame)
    values = [value_of(one, names, frame.f_globals) if one else UNKNOWN for one in _uses(code).unowned]
    within = any(_uses(one).unowned for one in codes_within(code) if one is not code)
    return within or any(value is UNKNOWN or value is pool for value in values)


def _read(stack: CallStack, at: int, view: ProcessView) -> SeenWait | None:
    names = variables_of(stack.frames[at])
    if stack.task is not None:
        waits = at == 0 and names.get("getter") is stack.future
    else:
        waits = at == 1 and id(stack.frames[0].f_code) in WAITS and names.get("timeout", 0) is None
    pool = names.get("self") if waits else None
    if type(pool) not in _CONTENTS or attribute_of(pool, _CONTENTS[type(pool)]):
        return None
    holders = view.inside(pool)
    depended_on.set()
    return (
        SeenWait(
            on=pool if stack.task is None else stack.future,
            enders=tuple(dict.fromkeys(holders)),
            what="an item of a queue, all of which {} took",
            ended_through=(pool,),
            ending_names=_ENDING,
            has_own_share=_puts_back_only,
            once=stack.task is not None,
        )
        if holders
        else None
    )


def _puts_back_only(codes: Sequence[CodeType]) -> bool:
    """Rule 3, for all code that a server's method may run."""
    every = dict.fromkeys(code for one in codes for code in codes_within(one) if is_application(code))
    return not any(_may_put(code, words_in(code)) for code in every)


def _may_put(code: CodeType, words: frozenset[str]) -> bool:
    by_other_names = not _OTHERWISE.isdisjoint(words) or OPENS_QUEUES in queue_operations(code, words)
    return by_other_names or bool(_uses(code).unowned) or (is_own_code(code) and not COMPUTING.isdisjoint(words))


RESOLVERS = (Resolver((("queue.py", "Queue.get"), ("asyncio/queues.py", "Queue.get")), _read),)
