"""Finds the futures that a frame will complete once it has read them from a queue: the requests in an actor's mailbox.

Rules:

1. The frame's code reads from the queue again (``queue.get()``), by an expression that has the queue as its value.
2. On every path from there back to that statement it completes the item, a part of it (``message, reply = queue.get()``), or an
   attribute of one of these (``request.reply``). It may return before: then nobody completes what is in the queue.
"""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.look.code.attributes import UNKNOWN, attribute_of
from stilltrue.runtime.look.code.names import ATTRIBUTES
from stilltrue.runtime.waits.futures.completions import call_of, completions_of, paths_from
from stilltrue.runtime.waits.holders.with_blocks import Expression, expression_before, instructions_of, value_of

_GET = "get"
_CONTENTS = {queue.Queue: "queue", queue.LifoQueue: "queue", asyncio.Queue: "_queue", asyncio.LifoQueue: "_queue"}
_ITEMS_MAX = 1_000
_AWAITS = frozenset({"GET_AWAITABLE", "LOAD_CONST", "SEND", "YIELD_VALUE", "RESUME", "JUMP_BACKWARD_NO_INTERRUPT", "END_SEND"})


@dataclass(frozen=True, slots=True)
class _Reading:
    """Where an item of the queue that ``queue`` names is read, and the expressions of what is completed.

    ``parts``: by variable, which part of the item it is set to; None: the item itself.
    """

    queue: Expression
    at: int
    parts: Mapping[str, int | None]
    completed: tuple[Expression, ...]


def awaiting_completion(frame: FrameType) -> Iterator[tuple[Any, Any]]:
    """The objects in queues that a frame will complete, futures or not; each with its queue."""
    code = frame.f_code
    ahead = _readings_ahead(code, frame.f_lasti) if _GET in code.co_names else ()
    names = variables_of(frame) if ahead else {}
    for one in ahead:
        mailbox = value_of(one.queue, names, frame.f_globals)
        for item in _items_of(mailbox):
            parts = {name: part for name, index in one.parts.items() if (part := _part(item, index)) is not UNKNOWN}
            yield from ((thing, mailbox) for each in one.completed if (thing := value_of(each, parts, {})) is not UNKNOWN)


def _items_of(thing: Any) -> Sequence[Any]:
    """The items of a queue; none for anything else."""
    contents = attribute_of(thing, _CONTENTS[type(thing)]) if type(thing) in _CONTENTS else ()
    return tuple(contents)[:_ITEMS_MAX]


def _part(item: Any, index: int | None) -> Any:
    if index is None:
        return item
    return item[index] if type(item) in (tuple, list) and index < len(item) else UNKNOWN


@cached_by_code
def _readings_ahead(code: CodeType, at: int) -> tuple[_Reading, ...]:
    """The statements of rules 1 and 2 that a frame at this position may come to."""
    every, readings = instructions_of(code), _readings(code)
    here = max((index for index, one in enumerate(every) if one.offset <= at), default=-1)
    ahead = set(paths_from(every, here, ())) if readings and here >= 0 else ()
    return tuple(one for one in readings if one.at in ahead)


@cached_by_code
def _readings(code: CodeType) -> tuple[_Reading, ...]:
    every, done = instructions_of(code), completions_of(code)
    found = []
    for index, one in enumerate(every):
        if not done or one.opname not in ATTRIBUTES or one.argval != _GET:
            continue
        source, call = expression_before(every, index), call_of(every, index)
        parts, stored = stored_after(every, call) if source and call is not None else ({}, 0)
        completed = tuple(one for one in done if one[0][1] in parts)
        if completed and _completes_before(every, stored, index, completed, done):
            found.append(_Reading(source, index, parts, completed))
    return tuple(found)


def _completes_before(
    every: Sequence[Any], stored: int, again: int, completed: Sequence[Expression], done: Mapping[Expression, frozenset[int]]
) -> bool:
    """Whether no path leads from a statement back to it without completing one of these expressions."""
    calls = frozenset[int]().union(*(done[one] for one in completed))
    return again not in set(paths_from(every, stored, calls))


def stored_after(every: Sequence[Any], call: int) -> tuple[dict[str, int | None], int]:
    """The variables that are set to the result of a call, perhaps awaited, or to its parts; and where the last is set."""
    index = call + 1
    while every[index].opname in _AWAITS or every[index].opname == "CACHE":
        index += 1
    parts: dict[str, int | None] = {}
    if every[index].opname != "UNPACK_SEQUENCE":
        names = _set_by(every[index])
        return ({names[0]: None} if names else {}), index
    count = int(every[index].arg)
    while len(parts) < count and (names := _set_by(every[index + 1])):
        parts.update({name: len(parts) + at for at, name in enumerate(names)})
        index += 1
    return parts, index


def _set_by(one: Any) -> tuple[str, ...]:
    if one.opname in ("STORE_FAST", "STORE_FAST_LOAD_FAST"):
        return (str(one.argval[0] if type(one.argval) is tuple else one.argval),)
    return tuple(map(str, one.argval)) if one.opname == "STORE_FAST_STORE_FAST" else ()
