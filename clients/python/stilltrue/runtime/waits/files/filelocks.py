"""Reads the objects of the ``filelock`` library (3 and 4): their descriptors, and the threads that poll for them."""

from __future__ import annotations

import gc
import os
import sys
import threading
from types import FrameType
from typing import Any

from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.look.code.attributes import UNKNOWN, attribute_of

_MODULE = "filelock"
POLLS = (("filelock/_api.py", "BaseFileLock.acquire"), ("filelock/_core/_acquire.py", "LockAcquisition._poll_until_acquired"))
_WAIT = ("blocking", "cancel_check", "timeout", "start_time")


def lock_in(thing: Any) -> Any:
    """The library's lock that ``thing`` is, or stands for in a ``with`` block; else None."""
    module = sys.modules.get(_MODULE)
    if module is None:
        return None
    names = module.__dict__
    if _is_a(thing, names.get("AcquireReturnProxy")):
        thing = attribute_of(thing, "lock")
    return thing if _is_a(thing, names.get("BaseFileLock")) else None


def _is_a(thing: Any, kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(type(thing), kind)


def descriptor_of(lock: Any) -> int | None:
    """The descriptor through which a lock's only holder has it; None if no thread has it, or threads share it."""
    found = [one for one in (_attribute(state, "lock_file_fd") for state in _states_of(lock)) if type(one) is int]
    return found[0] if len(found) == 1 else None


def awaited_path(frame: FrameType) -> tuple[Any, str, float] | None:
    """The lock that a frame polls for without a limit, its path and when it began; None if it has a limit."""
    names = variables_of(frame)
    lock, path = lock_in(names.get("self")), names.get("lock_filename")
    wait = names.get("wait")
    if isinstance(wait, tuple):
        names = {name: getattr(wait, name, UNKNOWN) for name in _WAIT}
    timeout, begun = names.get("timeout"), names.get("start_time")
    limited = not isinstance(timeout, int | float) or timeout >= 0 or names.get("cancel_check") is not None
    if lock is None or limited or names.get("blocking") is False or type(begun) is not float or type(path) is not str:
        return None
    if any(_attribute(state, "lifetime") not in (None, UNKNOWN) for state in _states_of(lock)):
        return None
    roots = {root for state in _states_of(lock) if type(root := _attribute(state, "claim_root")) is str}
    path = roots.pop() if len(roots) == 1 else path
    return lock, os.fspath(path), begun


def _states_of(lock: Any) -> list[Any]:
    """The state of each thread that uses a lock; none if all threads share one."""
    local = attribute_of(lock, "_context")
    if not issubclass(type(local), threading.local):
        return []
    tables = [one for one in gc.get_referents(local) if type(one) is dict]
    every = [own for table in tables for own in list(table.values()) if type(own) is dict]
    return [own.get("current", own) for own in every]


def _attribute(state: Any, name: str) -> Any:
    return state.get(name) if type(state) is dict else attribute_of(state, name)
