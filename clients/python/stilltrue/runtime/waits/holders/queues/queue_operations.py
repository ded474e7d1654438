"""What code may do to queues: take items out by ``get()``, or use the contents of one.

Rules:

1. A ``get`` with the arguments of a queue's counts (none, ``False``, ``block=...``), and so does one that is passed on. One
   with a key is a dictionary's.
2. The contents of a queue are its attribute ``queue`` or ``_queue``. Such an attribute is itself a queue if a method of queues
   is called on it.
3. Code of the program's own that looks up ``get``, or a computed name, may do both.

To find out takes time for each code object, so it is done only once a wait has depended on it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import CodeType
from typing import Any

from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.origins import is_application, is_own_code
from stilltrue.runtime.look.code.lookups import COMPUTED, looked_up
from stilltrue.runtime.look.code.names import ATTRIBUTES, VARIABLES
from stilltrue.runtime.waits.futures.completions import call_of
from stilltrue.runtime.waits.holders.with_blocks import SHUFFLES, instructions_of, skip_back

TAKES_ITEMS = "takes items"
"""Among the names of code: it may take an item out of a queue. No identifier contains a space."""
OPENS_QUEUES = "opens queues"
"""Likewise: it may use the contents of a queue."""
depended_on = threading.Event()
"""Set once a wait of this process has depended on what code does to queues."""
GET, GET_NOWAIT = "get", "get_nowait"
_CONTENTS = frozenset({"queue", "_queue"})
_INNER = frozenset({"_get", "_put"})
_OPERATIONS = _CONTENTS | _INNER | {GET, GET_NOWAIT}
_OF_QUEUES = frozenset({"put", "put_nowait", "qsize", "empty", "full", "join", "task_done", "maxsize", GET, GET_NOWAIT})
_TRUTHS = frozenset({"UNARY_NOT", "COMPARE_OP", "IS_OP", "CONTAINS_OP", "TO_BOOL"})
_BLOCKING = ("block", "wait", "timeout")
"""Parts of the names of variables that say whether, or how long, to wait for an item."""


def queue_operations(code: CodeType, words: frozenset[str]) -> frozenset[str]:
    """The further names of application code that uses these ``words``."""
    if not is_application(code):
        return frozenset()
    if is_own_code(code) and not {GET, COMPUTED}.isdisjoint(looked_up(code)):
        return frozenset({TAKES_ITEMS, OPENS_QUEUES})
    return frozenset() if _OPERATIONS.isdisjoint(words) else _operations_in(code)


@cached_by_code
def _operations_in(code: CodeType) -> frozenset[str]:
    """Rules 1 and 2, for a code object and the functions within it."""
    within = (_operations_in(one) for one in code.co_consts if isinstance(one, CodeType))
    return frozenset(_operations_of(code)).union(*within)


def _operations_of(code: CodeType) -> Iterator[str]:
    every = instructions_of(code)
    for index, one in enumerate(every):
        if one.opname not in ATTRIBUTES:
            continue
        if one.argval == GET_NOWAIT or (one.argval == GET and is_of_queue(code, index)):
            yield TAKES_ITEMS
        elif one.argval in _INNER or (one.argval in _CONTENTS and not _is_queue(every[index + 1])):
            yield OPENS_QUEUES


def _is_queue(after: Any) -> bool:
    return after.opname in ATTRIBUTES and after.argval in _OF_QUEUES


def is_of_queue(code: CodeType, mention: int) -> bool:
    """Whether the ``get`` that an instruction mentions may be a queue's (rule 1)."""
    every = instructions_of(code)
    call = call_of(every, mention)
    if call is None or every[call].opname == "CALL_FUNCTION_EX":
        return True
    given: list[Any] = [one for one in every[mention + 1 : call] if one.opname not in SHUFFLES]
    by_name = given and (given[-1].opname == "KW_NAMES" or every[call].opname == "CALL_KW")
    names: Any = code.co_consts[given.pop().arg] if by_name else ()
    if every[call].arg == len(names) or given[skip_back(given, len(given) - 1)].opname in _TRUTHS:
        return True
    first = given[0].argval[0] if type(given[0].argval) is tuple else given[0].argval
    if given[0].opname in VARIABLES or given[0].opname.startswith("LOAD_FAST"):
        return any(part in str(first) for part in _BLOCKING)
    return type(first) is bool
