"""Queues as pools: a party that takes a connection, a token or a worker out of a queue, and puts it back.

Rules:

1. A party has an item of a queue from ``item = queue.get()`` until ``queue.put(...)`` of the same expression, if its function
   has taken one on every path so far, and puts one back on every path that returns. Its bytecode shows whether a frame is
   between the two. If the function takes several, their variables tell them apart.
2. A party that waits without a timeout for an item of an empty queue waits for one of those that have one.
3. Any other party that can reach the queue, and whose code may put something into it or use its contents, is a way out. Code
   that only puts back what it has taken itself does not count: it has to take an item of the empty queue first. So does a
   server's method, with all that it may run.
4. A suspended generator may have an item, too, such as that of a stream of replies, which gRPC asks for the next one. If there
   are more of these than are known to belong to a party's block, the second look does not confirm the wait.
5. The queue may be that of an object (``pool.acquire()``, ``pool.release(item)``): a method whose only call takes an item and
   returns it, and one whose only call puts its argument there. Of a server's method, code that names such methods counts by
   their names. A function that a party calls, and that names the latter, may have put its item back.
"""

from __future__ import annotations

import asyncio
import inspect
import queue
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import AsyncGeneratorType, CodeType, FrameType, GeneratorType
from typing import Any

from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.origins import is_application, is_own_code
from stilltrue.runtime.look.code.attributes import UNKNOWN, attribute_of
from stilltrue.runtime.look.code.lookups import COMPUTED, looked_up
from stilltrue.runtime.look.code.names import ATTRIBUTES, words_in
from stilltrue.runtime.own_ref import OwnRef
from stilltrue.runtime.waits.ending_operations import PUTTING
from stilltrue.runtime.waits.futures.completions import call_of
from stilltrue.runtime.waits.futures.mailboxes import stored_after
from stilltrue.runtime.waits.holders.delegates import Call, call_at, method_of, only_call
from stilltrue.runtime.waits.holders.gates.own_shares import COMPUTING
from stilltrue.runtime.waits.holders.held_by_calls import calls_in, may_hold_by_calls, named_in
from stilltrue.runtime.waits.holders.queues.queue_operations import (
    GET,
    GET_NOWAIT,
    OPENS_QUEUES,
    depended_on,
    is_of_queue,
    queue_operations,
)
from stilltrue.runtime.waits.holders.with_blocks import Expression, expression_before, instructions_of, value_of
from stilltrue.runtime.waits.orphaned_locks.balance import Balance, balance_of
from stilltrue.runtime.waits.orphaned_locks.census import codes_within, take_census
from stilltrue.runtime.waits.orphaned_locks.lock_effects import ACQUIRES, MAY_ACQUIRE, RELEASES
from stilltrue.runtime.waits.resolvers.locks import WAITS
from stilltrue.runtime.waits.wait import CallStack, ProcessView, Resolver, SeenWait

GIVES_ITEMS = "gives items"
"""Among the names of code: it may put into a queue what it has not taken out of it. No identifier contains a space."""
_OTHERWISE = frozenset({"shutdown", "_put", "_wakeup_next"})
"""What a queue's own ``put()`` calls, and what ends all waits for its items."""
_ENDING = _OTHERWISE | {GIVES_ITEMS, OPENS_QUEUES}
COUNT_SECONDS = 0.1
"""For how long a count holds, for all that wait for one queue in a look. Nobody takes an item of an empty queue meanwhile."""
_counted: list[tuple[OwnRef, float, int]] = []
"""The queue whose suspended holders were counted last, until when that holds, and their number."""
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
    said = any(type(one) is str and one in PUTTING for one in code.co_consts)
    if said or PUTTING.isdisjoint(code.co_names):
        return _Uses(unowned=_NOT_UNDERSTOOD if said else frozenset())
    every = instructions_of(code)
    found: dict[Expression, _Steps] = {}
    for index, one in enumerate(every):
        if one.argval in PUTTING:
            expression = expression_before(every, index) if one.opname in ATTRIBUTES else ()
            call = call_of(every, index) if expression else None
            if call is None:
                return _Uses(unowned=_NOT_UNDERSTOOD)
            made = call_at(every, call)
            found.setdefault(expression, _Steps()).puts(index, () if made is None else made.arguments)
        elif one.opname in ATTRIBUTES and (one.argval == GET_NOWAIT or (one.argval == GET and is_of_queue(code, index))):
            call = call_of(every, index)
            found.setdefault(expression_before(every, index), _Steps()).takes(*_taken_at(every, index, call))
    balances = [(one, balance) for one, steps in found.items() for balance in steps.balances(code, (one,))]
    unowned = frozenset(one for one, balance in balances if balance.unowned)
    sure: dict[Expression, frozenset[int]] = {}
    held: dict[Expression, frozenset[int]] = {}
    for expression, balance in balances:
        held[expression] = held.get(expression, frozenset()) | balance.held
        if balance.sure and expression not in unowned:
            sure[expression] = sure.get(expression, frozenset()) | balance.sure
    return _Uses(sure, held, unowned)


def _taken_at(every: Sequence[Any], mention: int, call: int | None) -> tuple[int, str | None]:
    """Where an item is taken for certain, and the variable that it is stored in; None: perhaps there, and in none."""
    parts, stored = stored_after(every, call) if call is not None else ({}, mention)
    return stored, next((name for name, part in parts.items() if part is None), None)


@dataclass(slots=True)
class _Steps:
    """Where a code object takes items of a queue, and puts some there: by variable, each instruction with its effect."""

    taken: dict[str | None, dict[int, str]] = field(default_factory=dict)
    put: dict[str | None, dict[int, str]] = field(default_factory=dict)

    def takes(self, at: int, variable: str | None) -> None:
        """It takes one there."""
        self.taken.setdefault(variable, {})[at] = MAY_ACQUIRE if variable is None else ACQUIRES

    def puts(self, at: int, arguments: Sequence[Expression]) -> None:
        """It puts one there."""
        given = [one[0][1] for one in arguments if len(one) == 1 and one[0][0] == "name"]
        self.put.setdefault(str(given[0]) if len(given) == 1 else None, {})[at] = RELEASES

    def balances(self, code: CodeType, expressions: Sequence[Expression]) -> Iterator[Balance]:
        """The balance of each item; of all together, if only one variable has any."""
        if not self.put:
            return
        if len(self.taken) < 2:
            every = dict(item for those in (*self.taken.values(), *self.put.values()) for item in those.items())
            yield balance_of(code, every, expressions)
            return
        for variable in dict.fromkeys((*self.taken, *self.put)):
            yield balance_of(code, self.taken.get(variable, {}) | self.put.get(variable, {}), expressions)


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
    return by_text or (not PUTTING.isdisjoint(words) and (bool(code.co_flags & _SUSPENDS) or not puts_only_own(code)))


def called_by(names: frozenset[str]) -> frozenset[str]:
    """Names of operations, with those of the methods of queues that a callback may be itself (``Timer(1, pool.put)``)."""
    return names | PUTTING if GIVES_ITEMS in names else names


def has_taken_nothing(frame: FrameType) -> bool:
    """Whether a frame has yet to take everything that it, and the functions within it, put back."""
    code = frame.f_code
    return puts_only_own(code) and not any(frame.f_lasti in offsets for offsets in _uses(code).held.values())


@cached_by_code
def may_have_taken(code: CodeType) -> bool:
    """Whether a frame of this code may have taken an item that it will put back."""
    return is_application(code) and bool(_uses(code).sure)


def taken_in(frame: FrameType) -> Iterator[tuple[Any, frozenset[str]]]:
    """The queues of which a frame has an item, each with the methods that put it back."""
    code = frame.f_code
    here = [one for one, offsets in _uses(code).sure.items() if frame.f_lasti in offsets] if may_have_taken(code) else []
    by_calls = may_hold_by_calls(code)
    names = variables_of(frame) if here or by_calls else {}
    every = (value_of(one, names, frame.f_globals) for one in here)
    yield from ((one, frozenset()) for one in every if type(one) in _CONTENTS)
    if by_calls:
        yield from _taken_by_calls(frame, names)


# -- pools with methods (rule 5) -------------------------------------------------------------------------------------------


def _steps_by_calls(frame: FrameType, names: Mapping[str, Any]) -> dict[int, tuple[Any, _Steps, list[Call]]]:
    """By identity of the queue: the queue, and what a frame's code does with it by calls; those that put something there."""
    code, found = frame.f_code, dict[int, tuple[Any, _Steps, list[Call]]]()
    for call, _ in calls_in(code):
        pool, takes = _effect(call, names, frame.f_globals)
        if pool is None:
            continue
        _, steps, giving = found.setdefault(id(pool), (pool, _Steps(), []))
        if takes:
            steps.takes(*_taken_at(instructions_of(code), call.mention, call.at))
        else:
            steps.puts(call.mention, call.arguments)
            giving.append(call)
    return found


def _taken_by_calls(frame: FrameType, names: Mapping[str, Any]) -> Iterator[tuple[Any, frozenset[str]]]:
    code = frame.f_code
    for pool, steps, giving in _steps_by_calls(frame, names).values():
        givers = frozenset(one.name for one in giving)
        balances = list(steps.balances(code, [one.receiver for one in giving]))
        sure = any(balance.sure is not None and frame.f_lasti in balance.sure for balance in balances)
        if sure and not any(one.unowned for one in balances) and not _names_elsewhere(code, givers, giving):
            yield pool, givers


def _effect(call: Call, names: Mapping[str, Any], others: Mapping[str, Any]) -> tuple[Any, bool]:
    """The queue of which a call of a method takes an item, or into which it puts one; None for any other call."""
    owner = value_of(call.receiver, names, others) if call.receiver else UNKNOWN
    method = None if owner is UNKNOWN else method_of(type(owner), call.name)
    only = None if method is None else _takes_or_puts(method.__code__)
    if method is None or only is None:
        return None, False
    pool = value_of(only.receiver, {method.__code__.co_varnames[0]: owner}, method.__globals__)
    return (pool if type(pool) in _CONTENTS else None), only.name not in PUTTING


@cached_by_code
def _takes_or_puts(code: CodeType) -> Call | None:
    """The only call of a method that takes an item of its object's queue, and returns it, or puts its argument there."""
    call = only_call(code) if is_application(code) and code.co_argcount else None
    if call is None or not call.receiver or call.receiver[0] != ("name", code.co_varnames[0]):
        return None
    if call.name in PUTTING:
        return call if len(call.arguments) == 1 and call.arguments[0] == (("name", code.co_varnames[1]),) else None
    every = instructions_of(code)
    returned = every[stored_after(every, call.at)[1]].opname == "RETURN_VALUE"
    return call if call.name == GET and not call.arguments and returned else None


def _names_elsewhere(code: CodeType, names: frozenset[str], known: Sequence[Call]) -> bool:
    """Whether a code object, or a function within it, mentions one of these methods outside the known calls."""
    mentions = {one.mention for one in known}
    every = enumerate(instructions_of(code))
    if any(type(one.argval) is str and one.argval in names and index not in mentions for index, one in every):
        return True
    return any(not names.isdisjoint(named_in(one)) for one in codes_within(code) if one is not code)


def is_pool(thing: Any) -> bool:
    """Whether it is a queue of which a party may have an item."""
    return type(thing) in _CONTENTS


def may_have_put(frame: FrameType, pool: Any, givers: frozenset[str]) -> bool:
    """Whether a frame may have put something into a queue that it has not taken out of it; ``givers``: methods that do."""
    code = frame.f_code
    if not is_application(code):
        return False
    if any(not givers.isdisjoint(named_in(one)) for one in codes_within(code)):
        return True
    if puts_only_own(code):
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
    if not holders:
        return None
    depended_on.set()
    own = view.cached((__name__, id(pool)), lambda: _taken_by_parties(pool, view))
    return SeenWait(
        on=pool if stack.task is None else stack.future,
        enders=tuple(dict.fromkeys(holders)),
        what="an item of a queue, all of which {} took",
        ended_through=(pool,),
        ending_names=_ENDING,
        has_own_share=_puts_back_only,
        once=stack.task is not None,
        still=partial(_has_no_other_holders, OwnRef(pool), len(holders) - own),
    )


def _taken_by_parties(pool: Any, view: ProcessView) -> int:
    """The number of items that the frames of threads and tasks have themselves."""
    frames = (frame for one in (*view.stacks().values(), *view.stacks_of_tasks().values()) for frame in one.frames)
    return sum(one is pool for frame in frames for one, _ in taken_in(frame))


def _has_no_other_holders(weak: OwnRef, known: int) -> bool:
    """Whether no more suspended generators than those known may have an item of a queue (rule 4)."""
    pool = weak()
    if pool is None:
        return False
    if _counted and _counted[0][0]() is pool and time.monotonic() < _counted[0][1]:
        return _counted[0][2] <= known
    census = take_census()
    if census is None:
        return False
    every = (frame for one, frame in census.suspended if type(one) in (GeneratorType, AsyncGeneratorType))
    count = sum(_may_have_taken_from(frame, pool) for frame in every)
    _counted[:] = [(weak, time.monotonic() + COUNT_SECONDS, count)]
    return count <= known


def _may_have_taken_from(frame: FrameType, pool: Any) -> bool:
    """Whether a suspended frame may have an item of a queue."""
    code = frame.f_code
    here = [one for one, offsets in _uses(code).held.items() if frame.f_lasti in offsets] if is_application(code) else []
    by_calls = may_hold_by_calls(code)
    names = variables_of(frame) if here or by_calls else {}
    values = [value_of(one, names, frame.f_globals) if one else UNKNOWN for one in here]
    if any(one is UNKNOWN or one is pool for one in values):
        return True
    if not by_calls:
        return False
    steps, giving = _steps_by_calls(frame, names).get(id(pool), (_Steps(), []))[-2:]
    return any(frame.f_lasti in one.held for one in steps.balances(code, [one.receiver for one in giving]))


def _puts_back_only(codes: Sequence[CodeType]) -> bool:
    """Rule 3, for all code that a server's method may run."""
    every = dict.fromkeys(code for one in codes for code in codes_within(one) if is_application(code))
    methods = {code: call for code in every if (call := _takes_or_puts(code)) is not None}
    puts = frozenset(code.co_name for code, call in methods.items() if call.name in PUTTING)
    takes = frozenset(code.co_name for code, call in methods.items() if call.name not in PUTTING)
    others = [code for code in every if code not in methods]
    return not any(_may_put(code, words_in(code)) or _may_put_by(code, puts, takes) for code in others)


def _may_put_by(code: CodeType, puts: frozenset[str], takes: frozenset[str]) -> bool:
    """Whether code may put by methods of these names what it has not taken by one of those, on the same expression."""
    if puts.isdisjoint(named_in(code)):
        return False
    found: dict[Expression, _Steps] = {}
    giving = []
    for call, _ in calls_in(code):
        steps = found.setdefault(call.receiver, _Steps())
        if call.name in takes:
            steps.takes(*_taken_at(instructions_of(code), call.mention, call.at))
        elif call.name in puts:
            steps.puts(call.mention, call.arguments)
            giving.append(call)
    balances = (balance for one, steps in found.items() for balance in steps.balances(code, (one,)))
    return any(one.unowned for one in balances) or _names_elsewhere(code, puts, giving)


def _may_put(code: CodeType, words: frozenset[str]) -> bool:
    by_other_names = not _OTHERWISE.isdisjoint(words) or OPENS_QUEUES in queue_operations(code, words)
    return by_other_names or bool(_uses(code).unowned) or (is_own_code(code) and not COMPUTING.isdisjoint(words))


RESOLVERS = (Resolver((("queue.py", "Queue.get"), ("asyncio/queues.py", "Queue.get")), _read),)
