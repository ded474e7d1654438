"""Whether code ends its process or the run of its event loop.

Rules:

1. Application code ends the process by ``os._exit``, ``os.abort``, ``os.execv`` and the like, or by a signal to its own
   process, process group or main thread: with ``os.kill`` and the like, psutil, or a command (``kill``), if it asks for its own
   process id or has it, or reads a file that may tell it. Some commands end a program whatever its id: ``pkill``, ``reboot``,
   ``systemctl restart``. Code that asks for the parent process (``getppid``) ends when the parent is gone, and does not count.
   The function may be kept in a variable, an attribute or a table (``Watchdog(on_dead=os._exit)``), or looked up by its text.
2. ``SystemExit`` and ``KeyboardInterrupt`` escape from tasks and callbacks: the loop stops, and ``asyncio.run`` cancels all
   other tasks. In a thread other than the main one they end only that thread, and the main thread ends its program when it is
   done; neither counts.
3. Code that names ``all_tasks`` and a cancelling method may cancel all tasks of its loop; code that names
   ``PyThreadState_SetAsyncExc`` may raise an exception in any thread.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable
from itertools import pairwise
from types import CodeType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.bytecode.instructions import instructions
from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.origins import is_own_code
from stilltrue.runtime.look.called_code.call_graph import names_in
from stilltrue.runtime.look.called_code.indirect_calls import callables_kept
from stilltrue.runtime.look.called_code.jobs import FUNCTIONS
from stilltrue.runtime.look.code.attributes import attribute_of, named_values
from stilltrue.runtime.look.code.instructions_ahead import NEVER_RETURNING
from stilltrue.runtime.look.code.lookups import looked_up
from stilltrue.runtime.look.code.names import ATTRIBUTES, VARIABLES, chain_before
from stilltrue.runtime.look.code.system_operations import texts_in
from stilltrue.runtime.look.ways_out.reach import named_by

Functions = Iterable[tuple[CodeType, dict[str, Any]]]
"""Code of functions, each with its globals."""
_LEAVING = frozenset({"exit", "quit"})
_RAISED = frozenset({"SystemExit", "KeyboardInterrupt"})
_EXITING = NEVER_RETURNING | {"raise_signal", "pthread_kill", "interrupt_main"}
_INTERRUPTING_ANY = "PyThreadState_SetAsyncExc"
SENDING = frozenset({"kill", "killpg", "pidfd_send_signal"})
"""Functions that send a signal to any process."""
_PARENT = "getppid"
OWN_PROCESS = frozenset({"getpid", "getpgrp", "getpgid"})
"""Functions that return the id of the own process or its group."""
_BY_PSUTIL = frozenset({"kill", "terminate", "send_signal"})
_COMMAND = re.compile(r"(^|[;&|/]\s*)(p?kill|killall)($|\s)")
_ENDING_COMMAND = re.compile(r"(^|[;&|/]\s*|sudo\s+)(pkill|killall|reboot|poweroff)($|\s)")
_SUPERVISING_COMMAND = re.compile(r"(^|[;&|/]\s*|sudo\s+)(systemctl|supervisorctl|service|docker|kubectl)($|\s)")
_SUPERVISED = re.compile(r"\b(restart|try-restart|reload-or-restart|stop|kill|delete|reboot|poweroff)\b")
_RUNNING = frozenset({"subprocess", "system", "popen", "Popen", "create_subprocess_exec", "create_subprocess_shell"})
"""Names in code that runs a command."""
_READING = frozenset({"open", "read_text", "read_bytes"})
_OWN_GROUP = (0, -1)
_ANY_FUNCTIONS = frozenset({*FUNCTIONS, *compat.COMPILED_FUNCTIONS})
_ALL_TASKS = "all_tasks"
_CANCELLING = frozenset({"cancel", "throw"})


def ends_process(code: CodeType, names: frozenset[str], functions: Functions, held: Iterable[Any] = ()) -> bool:
    """Rule 1, for a function with these ``names`` ahead, the ``functions`` it names and the objects ``held``."""
    if not is_own_code(code):
        return False
    names |= looked_up(code)
    named = [(one, known) for one, known in functions if is_own_code(one)]
    if any(_calls_os_abort(one) or _signals_its_group(one) for one in (code, *(one for one, _ in named))):
        return True
    every = [(code, names), *((one, looked_up(one).union(one.co_names)) for one, _ in named)]
    if _PARENT in names:
        return False
    every = [(of, one) for of, one in every if _PARENT not in one]
    if any(_runs_ending_command(of) and not _RUNNING.isdisjoint(one) for of, one in every):
        return True
    if any(not _EXITING.isdisjoint(one) or _kills_by_psutil(one) for _, one in every):
        return True
    sends = any(not SENDING.isdisjoint(one) or _has_command(of) for of, one in every)
    return sends and (_knows_own_pid([of for of, _ in every], tuple(held)) or any(_names_own_pid(*one) for one in named))


def _knows_own_pid(codes: Iterable[CodeType], held: tuple[Any, ...]) -> bool:
    """Whether one of these functions asks for the own process id, or has it among its objects or their attributes."""
    names = frozenset[str]().union(*(code.co_names for code in codes))
    attributes = (attribute_of(one, name) for one in held for name in names)
    reads = not _READING.isdisjoint(names) and "int" in names  # from its own file of process ids
    return reads or not OWN_PROCESS.isdisjoint(names) or _has_own_pid((*held, *attributes))


def _names_own_pid(code: CodeType, known: dict[str, Any]) -> bool:
    return _has_own_pid(named_values(code.co_names, known))


def _has_own_pid(held: Iterable[Any]) -> bool:
    own = os.getpid()
    return any(type(one) is int and one == own for one in held)


def _kills_by_psutil(names: frozenset[str]) -> bool:
    return "psutil" in names and not _BY_PSUTIL.isdisjoint(names)


@cached_by_code
def _has_command(code: CodeType) -> bool:
    """Whether one of the code's texts is a command that sends a signal."""
    return any(_COMMAND.search(text) for text in texts_in(code.co_consts))


@cached_by_code
def _runs_ending_command(code: CodeType) -> bool:
    """Whether one of the code's texts is a command that may end this program, whatever its process id."""
    texts = list(texts_in(code.co_consts))
    supervises = any(map(_SUPERVISING_COMMAND.search, texts)) and any(map(_SUPERVISED.search, texts))
    parent = any("$PPID" in text and _COMMAND.search(text) for text in texts)  # a shell's, which is this process
    return supervises or parent or any(map(_ENDING_COMMAND.search, texts))


@cached_by_code
def _signals_its_group(code: CodeType) -> bool:
    """Whether the code signals its own group or all processes: ``os.kill(0, ...)``."""
    every = [one for one in instructions(code) if one.opname not in ("PUSH_NULL", "PRECALL")]
    return any(
        one.opname in ATTRIBUTES and one.argval == "kill" and after.opname.startswith("LOAD_") and after.argval in _OWN_GROUP
        for one, after in pairwise(every)
        if type(after.argval) is int
    )


def ends_loop(code: CodeType, names: frozenset[str], named: Iterable[CodeType]) -> bool:
    """Rule 2, as above."""
    if not is_own_code(code):
        return False
    here = not _LEAVING.isdisjoint(names) or (not _RAISED.isdisjoint(names) and _raises_exit(code))
    return here or any(is_own_code(one) and (not _LEAVING.isdisjoint(one.co_names) or _raises_exit(one)) for one in named)


def cancels_all_tasks(names: frozenset[str], named: Iterable[CodeType]) -> bool:
    """Rule 3, for tasks."""
    every = names.union(*map(names_in, named))
    return _ALL_TASKS in every and not _CANCELLING.isdisjoint(every)


def interrupts_any_thread(names: frozenset[str], named: Iterable[CodeType]) -> bool:
    """Rule 3, for threads."""
    return _INTERRUPTING_ANY in names.union(*(code.co_names for code in named))


def calls_kept_exit(code: CodeType, near: Iterable[Any], words: frozenset[str], functions: Functions) -> bool:
    """Whether code that has the objects ``near``, and these ``words`` ahead, may call a kept function that ends the process."""
    if not is_own_code(code):
        return False
    every = [(tuple(near), words)]
    every += [(named_values(one.co_names, known), names_in(one)) for one, known in functions if is_own_code(one)]
    for things, said in every:
        held = (*things, *(each for one in things for each in named_by(one) or () if type(one) in FUNCTIONS))
        kept = callables_kept(held, said, _ANY_FUNCTIONS)
        if any(callback_ends_process(one, ()) for one in (*held, *kept)):
            return True
    return False


def callback_ends_process(callback: Any, arguments: Iterable[Any]) -> bool:
    """Whether a callback is a compiled function, or a partial of one, that ends the process."""
    name = _builtin_in(callback)
    given = (*(callback.args if type(callback) is functools.partial else ()), *arguments)
    return name in _EXITING | {"abort"} or (name in SENDING and _has_own_pid(given))


def callback_ends_loop(callback: Any) -> bool:
    """Whether a callback is ``sys.exit`` or a partial of it."""
    return _builtin_in(callback) in _LEAVING


def _builtin_in(callback: Any) -> str:
    """The name of a builtin function or of the one behind a partial; empty for other callbacks."""
    function = callback.func if type(callback) is functools.partial else callback
    return compat.name_of(function) if type(function) in compat.COMPILED_FUNCTIONS else ""


@cached_by_code
def _calls_os_abort(code: CodeType) -> bool:
    """Whether application code calls ``os.abort``. gRPC's contexts have a method of the same name."""
    every = list(instructions(code))
    aborting = (index for index, one in enumerate(every) if one.opname in ATTRIBUTES and one.argval == "abort")
    return is_own_code(code) and any(chain_before(every, index) == ("os",) for index in aborting)


@cached_by_code
def _raises_exit(code: CodeType) -> bool:
    """Whether the code raises one of these exceptions, as a class or an instance."""
    named = ((one, after.opname) for one, after in pairwise(instructions(code)) if one.opname in VARIABLES)
    return any(one.argval in _RAISED and (after == "RAISE_VARARGS" or "NULL" in one.argrepr) for one, after in named)
