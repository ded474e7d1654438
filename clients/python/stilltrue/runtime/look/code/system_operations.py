"""What code may do to files and processes that other parties wait for, whatever objects it reaches.

Application code that names such an operation, or has a text that is such a command, gets one more name. The standard library
and ``filelock`` do these things for themselves, except for functions that are called to open a file (``shutil.copy``). Which
file or process is meant is not analysed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from threading import Thread
from types import BuiltinFunctionType, CodeType, FunctionType
from typing import Any

from stilltrue.runtime import own_packages
from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.origins import is_application
from stilltrue.runtime.look.code.attributes import attributes_of

DELETES_FILES = "deletes files"
"""Among the names of code: it may take a file away from its path. No identifier contains a space."""
SIGNALS_PROCESSES = "signals processes"
"""Likewise: it may send a signal to a process by its id."""
OPENS_FILES = "opens files"
"""Likewise: it may open a file, and close it."""
USES_DESCRIPTORS = "uses descriptors"
"""Likewise: it may read, write or close a file by its descriptor."""
STARTS_PROCESSES = "starts processes"
"""Likewise: it may start a process, and hand a descriptor to it."""
UNLOCKS_FILES = "unlocks files"
"""Likewise: it may close a file, or unlock it, by its descriptor. Code that takes such locks as well unlocks its own."""
OPERATIONS = frozenset({UNLOCKS_FILES, DELETES_FILES, SIGNALS_PROCESSES, OPENS_FILES, USES_DESCRIPTORS, STARTS_PROCESSES})
_FILELOCK = "filelock"
_DELETING = frozenset({"unlink", "rmtree", "removedirs", "cleanup"})
"""Methods and functions that delete files; the last one is of ``tempfile.TemporaryDirectory``."""
_OPENING = frozenset({"open", "fdopen", "FileIO", "lockf", "flock", "read_text", "read_bytes", "write_text", "write_bytes"})
_OPENING_BY_LIBRARY = frozenset(
    {"copyfile", "copy2", "copytree", "make_archive", "unpack_archive", "ZipFile", "TarFile", "FileInput", "getline"}
    | {"FileHandler", "RotatingFileHandler", "TimedRotatingFileHandler", "WatchedFileHandler", "fileConfig"}
    | {"ConfigParser", "RawConfigParser", "getlines", "run_path"}
)
"""Functions and classes of the standard library that open a file and close it."""
_OF_SHUTIL = ("copy", "move")
_OF_OS = ("remove", "rename", "renames", "replace")
_BY_DESCRIPTOR = ("read", "readv", "write", "writev", "close", "dup2")
_ALWAYS_BY_DESCRIPTOR = frozenset(
    {"fdopen", "FileIO", "fromfd", "sendfile", "splice", "closerange", "close_range", "F_SETPIPE_SZ"}
)
_STARTING = ("run", "call", "check_call", "check_output")
_ALWAYS_STARTS = frozenset(
    {"Popen", "create_subprocess_exec", "create_subprocess_shell", "subprocess_exec", "subprocess_shell"}
)
_LOCKING = frozenset({"LOCK_EX", "LOCK_SH"})
_CLOSING = ("close", "dup2")
_ALWAYS_CLOSES = frozenset({"closerange", "close_range"})
_NOTHING = object()
_SIGNALLING = frozenset({"kill", "terminate", "send_signal"})
_SIGNALLERS = frozenset({"os", "psutil", "signal"})
_ALWAYS_SIGNALS = frozenset({"killpg", "pidfd_send_signal", "active_children"})
"""``multiprocessing.active_children()`` returns the workers for whoever calls it to end."""
_OF_SYSTEM = ("posix", "nt", "signal", "_signal", "fcntl")
_SIGNALLING_FUNCTIONS = frozenset({"kill", "killpg", "pidfd_send_signal", "system"})
_DELETES = re.compile(r"(^|[;&|/]\s*)(rm|unlink|mv)($|\s)|\s-delete\b")
_UNLOCKS = re.compile(r"(^|[;&|/]\s*)flock($|\s)")
_KILLS = re.compile(r"(^|[;&|/]\s*)(p?kill|killall)($|\s)")
_COMMANDS = (_DELETES, _UNLOCKS, _KILLS)


def system_operations(code: CodeType, words: frozenset[str], names: Mapping[str, Any]) -> Iterator[str]:
    """The further names of code that uses these ``words``; ``names``: its globals."""
    if not is_application(code) or own_packages.name_of(code.co_filename) == _FILELOCK:
        return
    commands = _commands_in(code)
    if _names_of("os", _OF_OS, words, names) or not _DELETING.isdisjoint(words) or _DELETES in commands:
        yield DELETES_FILES
    by_shutil = _names_of("shutil", _OF_SHUTIL, words, names)
    if by_shutil or not (_OPENING.isdisjoint(words) and _OPENING_BY_LIBRARY.isdisjoint(words)):
        yield OPENS_FILES
    if _names_of("os", _BY_DESCRIPTOR, words, names) or not _ALWAYS_BY_DESCRIPTOR.isdisjoint(words):
        yield USES_DESCRIPTORS
    by_number = _names_of("os", _CLOSING, words, names) or not _ALWAYS_CLOSES.isdisjoint(words) or _UNLOCKS in commands
    if by_number or ("flock" in words and _LOCKING.isdisjoint(words)):
        yield UNLOCKS_FILES
    of_signaller = not (_SIGNALLING.isdisjoint(words) or _SIGNALLERS.isdisjoint(words))
    if of_signaller or not _ALWAYS_SIGNALS.isdisjoint(words) or _KILLS in commands:
        yield SIGNALS_PROCESSES
    if _names_of("subprocess", _STARTING, words, names) or not _ALWAYS_STARTS.isdisjoint(words):
        yield STARTS_PROCESSES


def operations_given(thing: Any) -> Iterator[str]:
    """The operations of a system's function that an object is, is a partial of, or, as a thread, was given to call."""
    given = attributes_of(thing) if issubclass(type(thing), Thread) else (thing,)
    for one in given:
        function = one.func if type(one) is partial else one
        if type(function) is FunctionType and function.__module__ == "subprocess":
            yield from (SIGNALS_PROCESSES, STARTS_PROCESSES)
        elif type(function) is BuiltinFunctionType and function.__module__ in _OF_SYSTEM:
            yield from (SIGNALS_PROCESSES,) if function.__name__ in _SIGNALLING_FUNCTIONS else ()
            yield from (USES_DESCRIPTORS,) if function.__name__ in _BY_DESCRIPTOR else ()
            yield from (UNLOCKS_FILES,) if function.__name__ in (*_CLOSING, "flock") else ()


def _names_of(module: str, wanted: Iterable[str], words: frozenset[str], names: Mapping[str, Any]) -> bool:
    """Whether code uses one of the ``wanted`` functions of a module."""
    loaded = sys.modules.get(module)  # the agent imports none of them
    return any(word in words and (module in words or names.get(word) is getattr(loaded, word, _NOTHING)) for word in wanted)


@cached_by_code
def _commands_in(code: CodeType) -> frozenset[re.Pattern[str]]:
    """Which of the commands are in the texts of a function."""
    return frozenset(wanted for text in texts_in(code.co_consts) for wanted in _COMMANDS if wanted.search(text))


def texts_in(consts: Iterable[Any]) -> Iterator[str]:
    """The texts among constants, and in tuples of them."""
    for one in consts:
        if type(one) is str:
            yield one
        elif type(one) is tuple:
            yield from texts_in(one)
