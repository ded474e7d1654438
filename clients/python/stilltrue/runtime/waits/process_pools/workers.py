"""The worker processes of pools: what each one runs, and how others name that.

Rules:

1. A worker runs its items in its main thread, one by one. Only this thread sends the item's result, so who waits for the
   result waits for it: for the *item*, which one worker of the pool runs, or, if the item is queued, for a worker's *turn*,
   which lasts from the moment when it takes an item until it takes the next one.
2. A worker without an item holds neither, and a wait for something that nobody holds may end at any moment.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from types import CodeType
from typing import Any

from stilltrue.protocol.report import Hold
from stilltrue.runtime.bytecode.qualified_names import qualname_of
from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.look.code.attributes import attribute_of
from stilltrue.runtime.waits.process_pools.names import EXECUTORS, POOLS, name_of_item, name_of_turn
from stilltrue.runtime.waits.process_view import LiveProcessView
from stilltrue.runtime.waits.resolvers.thread_pools import item_of

_OUTERMOST_MAX = 16
_WORKERS = {("concurrent/futures/process.py", "_process_worker"): EXECUTORS, ("multiprocessing/pool.py", "worker"): POOLS}


def holds(view: LiveProcessView) -> tuple[Hold, ...]:
    """What this process runs at a cut, if it is a worker of a pool (rule 1)."""
    process = sys.modules.get("multiprocessing.process")
    if process is None or process.__dict__.get("_parent_process") is None:
        return ()
    ident = threading.main_thread().ident
    stack = None if ident is None else view.stacks().get(ident)
    for frame in () if stack is None else stack.frames[-_OUTERMOST_MAX:]:
        kind = _kind_of_worker(frame.f_code)
        if kind is not None and stack is not None:
            party = view.party_of(stack.ident)
            names = _names(kind, variables_of(frame))
            return () if party is None else tuple(Hold(party=party, resource=name) for name in names)
    return ()


@cached_by_code
def _kind_of_worker(code: CodeType) -> str | None:
    file = code.co_filename.replace("\\", "/")
    return next((kind for (end, name), kind in _WORKERS.items() if file.endswith(end) and qualname_of(code) == name), None)


def _names(kind: str, names: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of a worker's item and turn; empty without an item (rule 2)."""
    if kind == EXECUTORS:
        queue, number, part = names.get("result_queue"), attribute_of(names.get("call_item"), "work_id"), 0
    else:
        queue = names.get("outqueue")
        number, part = item_of(names.get("task")) or (None, 0)
    if type(number) is not int:
        return ()
    found = (name_of_item(attribute_of(queue, "_writer"), number, part), name_of_turn(os.getpid()))
    return tuple(one for one in found if one is not None)
