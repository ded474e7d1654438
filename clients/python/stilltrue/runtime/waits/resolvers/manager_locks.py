"""Waits of threads for the locks of a manager of ``multiprocessing``: each is a wait for the party that holds the lock.

Rules:

1. A lock is named by its number in the manager's server process, and by the path of that server's socket. The same port of
   another network may be another server's, so a manager with any other address has no known locks.
2. A thread waits for it in its ``with`` block's entry, or in ``acquire()`` without a timeout. The server runs a thread for each
   of ours, and that one waits there. A wait for an ``RLock`` of the thread's own is over at once.
3. The holder is in the lock's block, or between ``acquire()`` and the ``finally`` that releases it
   (:mod:`~stilltrue.runtime.waits.shared_lock_holders`). A child of a fork has the frames of its parent's thread, whose blocks
   are not the child's.
4. The end of the server ends the wait with an error. The process that has made the manager ends it, at the latest when its main
   thread ends. So the wait is for the lock's holder or for that main thread. Any other party of that process that can reach
   the manager may end it, whatever its code mentions.
5. Who may release it: as rule 4 of :mod:`~stilltrue.runtime.waits.resolvers.shared_locks`.
6. Where a class of managers makes anything else than locks of :mod:`threading` under these names, nothing is known.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

from stilltrue.protocol.report import ResourceTarget
from stilltrue.runtime.bytecode.qualified_names import qualname_of
from stilltrue.runtime.concurrent_reads import items_of
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.look.code.attributes import attribute_of
from stilltrue.runtime.waits.files.kernel import machine
from stilltrue.runtime.waits.holders.held_locks import held_by
from stilltrue.runtime.waits.resolvers.locks import MANAGERS, RELEASING, is_manager_lock
from stilltrue.runtime.waits.wait import CallStack, ProcessView, Resolver, SeenWait

_MADE = {"Lock": threading.Lock, "RLock": threading.RLock}
_BOOTSTRAP = ("multiprocessing/process.py", "BaseProcess._bootstrap")
_CLASSES_MAX = 100
_LOADED_IN = os.getpid()


def name_of(lock: Any) -> str | None:
    """The name of a lock's resource (rule 1); None if it has none."""
    number, server = attribute_of(attribute_of(lock, "_token"), "id"), keeper_of(address_of(lock))
    return f"lock {number} of the {server}" if type(number) is str and server is not None and _are_locks() else None


def address_of(lock: Any) -> Any:
    """The address of the server that has a lock."""
    return attribute_of(attribute_of(lock, "_token"), "address")


def keeper_of(address: Any) -> str | None:
    """The resource that the main thread of the process which has made a manager holds (rule 4); None if there is no name."""
    where = machine() if type(address) is str and address else None
    return None if where is None else f"manager {address} of machine {where}"


def is_owned(lock: Any) -> bool:
    """Whether only the owner of a manager's lock can release it."""
    return bool(attribute_of(attribute_of(lock, "_token"), "typeid") == "RLock")


def has_locks() -> bool:
    """Whether this process has anything of a manager's."""
    proxies = getattr(sys.modules.get(MANAGERS), "BaseProxy", None)
    known = None if proxies is None else type.__getattribute__(proxies, "__dict__").get("_address_to_local")
    return type(known) is dict and bool(known)


def own_managers() -> list[tuple[Any, str]]:
    """The managers whose server this process has started and not yet ended, each with the resource that its keeper holds."""
    util = sys.modules.get("multiprocessing.util") if MANAGERS in sys.modules else None
    registered = None if util is None else util.__dict__.get("_finalizer_registry")
    found = []
    for _, one in items_of(registered) if type(registered) is dict else ():
        callback, args = attribute_of(one, "_callback"), attribute_of(one, "_args")
        if getattr(callback, "__qualname__", "") != "BaseManager._finalize_manager" or type(args) is not tuple:
            continue
        manager, name = attribute_of(one, "_weakref")(), keeper_of(args[1])
        if manager is not None and name is not None and attribute_of(one, "_pid") == os.getpid():
            found.append((manager, name))
    return found


def holds_itself(lock: Any, ident: int, view: ProcessView) -> bool:
    """Whether a thread that is in a lock's block has entered it in this process (rule 3)."""
    if ident != threading.main_thread().ident:
        return True
    stack = view.stacks().get(ident)
    frames = () if stack is None else stack.frames
    file, name = _BOOTSTRAP
    starts = (
        index
        for index, one in enumerate(frames)
        if qualname_of(one.f_code) == name and one.f_code.co_filename.replace("\\", "/").endswith(file)
    )
    own = frames[: next(starts, len(frames) if os.getpid() == _LOADED_IN else 0)]
    held, _ = held_by(CallStack(own, ident))
    return any(one is lock for one, _ in held)


def _are_locks() -> bool:
    """Rule 6."""
    module = sys.modules.get(MANAGERS)
    kinds = [] if module is None else [module.__dict__["BaseManager"]]
    for kind in kinds:
        registry = type.__getattribute__(kind, "__dict__").get("_registry")
        for name, made in _MADE.items():
            entry = dict.get(registry, name) if type(registry) is dict else None
            if entry is not None and entry[0] is not made:
                return False
        kinds += [one for one in type.__subclasses__(kind) if one not in kinds]
        if len(kinds) > _CLASSES_MAX:
            return False
    return bool(kinds)


def _read(stack: CallStack, at: int, view: ProcessView) -> SeenWait | None:
    """Rules 2 and 4."""
    names = variables_of(stack.frames[at])
    lock = names.get("self")
    if stack.task is not None or at == 0 or not is_manager_lock(lock):
        return None
    if names.get("blocking", True) is not True or names.get("timeout") is not None:
        return None
    name, keeper = name_of(lock), keeper_of(address_of(lock))
    if name is None or keeper is None or (is_owned(lock) and _is_own(name, stack.ident, view)):
        return None
    return SeenWait(
        on=lock,
        enders=(ResourceTarget(resource=name), ResourceTarget(resource=keeper)),
        what="a lock of a manager of multiprocessing",
        ended_through=() if is_owned(lock) else (lock,),
        ending_names=RELEASING,
    )


def _is_own(name: str, ident: int, view: ProcessView) -> bool:
    """Whether a thread is in the block of a lock with this name."""
    return any(ident in holders and is_manager_lock(one) and name_of(one) == name for one, holders in view.shared_locks())


_PLACES = tuple(("multiprocessing/managers.py", f"AcquirerProxy.{name}") for name in ("__enter__", "acquire"))
RESOLVERS = (Resolver(_PLACES, _read),)
