"""Waits of threads for the locks of ``multiprocessing``, which processes share: each is a wait for the party that holds it.

Rules:

1. A lock is named by the file in memory that the kernel has for its semaphore, the same in every process that has it.
2. A thread waits for it in its ``with`` block's entry, or in ``acquire()`` without arguments. One with a timeout does not.
3. The process of the holder has acquired it once more than released (``_count()``), and one of its parties is in the lock's
   block, or between ``acquire()`` and the ``finally`` that releases it (:mod:`~stilltrue.runtime.waits.shared_lock_holders`).
4. Only its owner releases an ``RLock``. Any process may release a ``Lock``: within a suspect's process, the second look
   searches for the parties that can reach it and mention releasing it; for the other processes, which mostly run the same
   program, a mention of ``release`` in the program's own files is doubt, unless its function has acquired the lock on every
   path there.
5. A lock, or a semaphore in its block's entry, may have no holder at all: its process has ended
   (:mod:`~stilltrue.runtime.waits.semaphores.left`). Others who hold semaphores are unknown; for conditions, see
   :mod:`~stilltrue.runtime.waits.semaphores.conditions`.
   A queue's reader holds its lock, and waits at its pipe (:mod:`~stilltrue.runtime.waits.pipes.resolver`).
"""

from __future__ import annotations

import sys
from typing import Any
from weakref import WeakKeyDictionary

from stilltrue.protocol.report import ResourceTarget
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.look.code.attributes import attribute_of
from stilltrue.runtime.waits.files.kernel import machine
from stilltrue.runtime.waits.holders.with_blocks import acquired_at
from stilltrue.runtime.waits.resolvers.locks import RELEASING, is_shared_lock
from stilltrue.runtime.waits.semaphores.kernel import Semaphore, mapped_in
from stilltrue.runtime.waits.semaphores.left import wait_for_ended_holder
from stilltrue.runtime.waits.semaphores.own import MODULE, is_semaphore
from stilltrue.runtime.waits.wait import CallStack, ProcessView, Resolver, SeenWait

_semaphores: WeakKeyDictionary[Any, Semaphore | None] = WeakKeyDictionary()
"""Rule 1, by lock: a lock's semaphore stays where it is."""


def name_of(lock: Any) -> str | None:
    """The name of a lock's resource (rule 1); None if it has none."""
    key, where = semaphore_of(lock), machine()
    return None if key is None or where is None else f"semaphore {':'.join(map(str, key))} of machine {where}"


def semaphore_of(lock: Any) -> Semaphore | None:
    """The semaphore of a lock; None if it has none."""
    if lock not in _semaphores:
        _semaphores[lock] = _find_semaphore(lock)
    return _semaphores[lock]


def _find_semaphore(lock: Any) -> Semaphore | None:
    address: Any = getattr(attribute_of(lock, "_semlock"), "handle", None)
    try:
        mapped = mapped_in("self") if type(address) is int else {}
    except OSError:
        return None
    return next((key for key, (start, end) in mapped.items() if start <= address < end), None)


def is_owned(lock: Any) -> bool:
    """Whether only the owner of a shared lock can release it (rule 4)."""
    return type(lock).__name__ == "RLock"


def _read_entry(stack: CallStack, at: int, _: ProcessView) -> SeenWait | None:
    return _of(variables_of(stack.frames[0]).get("self")) if at == 0 and stack.task is None else None


def _read_acquire(stack: CallStack, _: int, __: ProcessView) -> SeenWait | None:
    code = stack.frames[0].f_code
    if stack.task is not None or MODULE not in sys.modules or "acquire" not in code.co_names:
        return None
    lock = acquired_at(stack.frames[0])
    return _of(lock) if is_shared_lock(lock) else None


def _of(lock: Any) -> SeenWait | None:
    left = wait_for_ended_holder(semaphore_of(lock)) if is_semaphore(lock) else None
    if not is_shared_lock(lock):
        return left
    name = name_of(lock)
    enders = None if name is None else (ResourceTarget(resource=name),)
    through = () if is_owned(lock) else (lock,)
    what = "a lock of multiprocessing"
    return SeenWait(on=lock, enders=enders, what=what, ended_through=through, ending_names=RELEASING, also=left)


RESOLVERS = (
    Resolver((("multiprocessing/synchronize.py", "SemLock.__enter__"),), _read_entry),
    Resolver((), _read_acquire),
)
