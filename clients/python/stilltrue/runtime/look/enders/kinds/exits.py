"""Whether code ends its process, or the run of its event loop.

Rules:

1. The application's own code ends the process by ``os._exit``, ``os.abort``, ``os.execv`` and the like, or a signal to its own
   process, process group or main thread: by ``os.kill`` and the like, by psutil, or by a command (``kill``), where it asks for
   its own process or has its number. Who asks for the parent process (``getppid``) ends when that has gone, and does not count.
2. ``SystemExit`` and ``KeyboardInterrupt`` leave a task or a callback: the loop stops, and ``asyncio.run`` cancels every other
   task of it. In any other thread than the main one such an exception ends that thread alone, and the main thread ends its
   program when that is done: neither counts.
3. Who names ``all_tasks`` and speaks of cancelling has all the tasks of its loop; who names ``PyThreadState_SetAsyncExc`` may
   raise an exception in any thread.
"""

from __future__ import annotations

import dis
import functools
import os
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from types import BuiltinFunctionType, CodeType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.by_code import kept_by_code
from stilltrue.runtime.introspection.origins import is_own_code
from stilltrue.runtime.look.code.ahead import NEVER_RETURNING
from stilltrue.runtime.look.code.attributes import attribute_of
from stilltrue.runtime.look.code.names import ATTRIBUTES, VARIABLES, chain_before

Functions = Iterable[tuple[CodeType, dict[str, Any]]]
"""Their code, with their globals."""
_LEAVING = frozenset({"exit", "quit"})
_RAISED = frozenset({"SystemExit", "KeyboardInterrupt"})
_EXITING = NEVER_RETURNING | {"raise_signal", "pthread_kill", "interrupt_main"}
_INTERRUPTING_ANY = "PyThreadState_SetAsyncExc"
SENDING = frozenset({"kill", "killpg", "pidfd_send_signal"})
"""Functions that send a signal to any process."""
ITSELF = frozenset({"getpid", "getpgrp", "getpgid"})
"""Functions by which code knows its own process, or the group of it."""
_BY_PSUTIL = frozenset({"kill", "terminate", "send_signal"})
_COMMAND = re.compile(r"(^|[;&|/]\s*)(p?kill|killall)($|\s)")
_OWN_GROUP = (0, -1)
_ALL_TASKS = "all_tasks"
_CANCELLING = frozenset({"cancel", "throw"})


def ends_process(code: CodeType, names: frozenset[str], functions: Functions, held: Iterable[Any] = ()) -> bool:
    """Rule 1, of a function in whose code these names are ahead, and of the ``functions`` that it names; it has ``held``."""
    if not is_own_code(code):
        return False
    named = [(one, known) for one, known in functions if is_own_code(one)]
    if any(_aborts(one) or _signals_its_group(one) for one in (code, *(one for one, _ in named))):
        return True
    every = [(code, names), *((one, frozenset(one.co_names)) for one, _ in named)]
    if any("getppid" in one for _, one in every):
        return False
    if any(not _EXITING.isdisjoint(one) or _kills_by_psutil(one) for _, one in every):
        return True
    sends = any(not SENDING.isdisjoint(one) or _has_command(of) for of, one in every)
    return sends and (_has_its_number([of for of, _ in every], tuple(held)) or any(_knows_itself(*one) for one in named))


def _has_its_number(codes: Iterable[CodeType], held: tuple[Any, ...]) -> bool:
    """Whether one of these functions asks for the process's own number, or what they have is that, or has it."""
    names = frozenset[str]().union(*(code.co_names for code in codes))
    return not ITSELF.isdisjoint(names) or _is_itself((*held, *(attribute_of(one, name) for one in held for name in names)))


def _knows_itself(code: CodeType, known: dict[str, Any]) -> bool:
    return _is_itself(known[name] for name in code.co_names if name in known)


def _is_itself(held: Iterable[Any]) -> bool:
    own = os.getpid()
    return any(type(one) is int and one == own for one in held)


def _kills_by_psutil(names: frozenset[str]) -> bool:
    return "psutil" in names and not _BY_PSUTIL.isdisjoint(names)


@kept_by_code
def _has_command(code: CodeType) -> bool:
    """Whether one of its texts is a command that sends a signal."""
    return any(_COMMAND.search(text) for text in _texts_in(code.co_consts))


def _texts_in(consts: Iterable[Any]) -> Iterator[str]:
    for one in consts:
        if type(one) is str:
            yield one
        elif type(one) is tuple:
            yield from _texts_in(one)


@kept_by_code
def _signals_its_group(code: CodeType) -> bool:
    """Whether it sends a signal to its own group, or to everybody: ``os.kill(0, ...)``."""
    every = [one for one in dis.get_instructions(code) if one.opname not in ("PUSH_NULL", "PRECALL")]
    return any(
        one.opname in ATTRIBUTES and one.argval == "kill" and after.opname.startswith("LOAD_") and after.argval in _OWN_GROUP
        for one, after in pairwise(every)
        if type(after.argval) is int
    )


def ends_its_loop(code: CodeType, names: frozenset[str], named: Iterable[CodeType]) -> bool:
    """Rule 2, likewise."""
    if not is_own_code(code):
        return False
    here = not _LEAVING.isdisjoint(names) or (not _RAISED.isdisjoint(names) and _raises(code))
    return here or any(is_own_code(one) and (not _LEAVING.isdisjoint(one.co_names) or _raises(one)) for one in named)


def cancels_all(names: frozenset[str], named: Iterable[CodeType]) -> bool:
    """Rule 3, likewise."""
    every = names.union(*(code.co_names for code in named))
    return _ALL_TASKS in every and not _CANCELLING.isdisjoint(every)


def interrupts_any(names: frozenset[str], named: Iterable[CodeType]) -> bool:
    """Rule 3, of threads."""
    return _INTERRUPTING_ANY in names.union(*(code.co_names for code in named))


def is_end_of_process(callback: Any, arguments: Iterable[Any]) -> bool:
    """Whether a callback is a compiled function that ends the process, given some of its arguments or not."""
    name = _builtin_in(callback)
    given = (*(callback.args if type(callback) is functools.partial else ()), *arguments)
    return name in _EXITING | {"abort"} or (name in SENDING and _is_itself(given))


def is_end_of_loop(callback: Any) -> bool:
    """Whether a callback is ``sys.exit`` itself, likewise."""
    return _builtin_in(callback) in _LEAVING


def _builtin_in(callback: Any) -> str:
    """The name of the builtin function that a callback is, or a partial of it; empty for anything else."""
    function = callback.func if type(callback) is functools.partial else callback
    return compat.name_of(function) if type(function) is BuiltinFunctionType else ""


@kept_by_code
def _aborts(code: CodeType) -> bool:
    """Whether a function of the application's own calls ``os.abort``; gRPC's contexts have a method of that name."""
    every = list(dis.get_instructions(code))
    aborting = (index for index, one in enumerate(every) if one.opname in ATTRIBUTES and one.argval == "abort")
    return is_own_code(code) and any(chain_before(every, index) == ("os",) for index in aborting)


@kept_by_code
def _raises(code: CodeType) -> bool:
    """Whether it raises one of these exceptions: the class, or what the class is called for."""
    named = ((one, after.opname) for one, after in pairwise(dis.get_instructions(code)) if one.opname in VARIABLES)
    return any(one.argval in _RAISED and (after == "RAISE_VARARGS" or "NULL" in one.argrepr) for one, after in named)
