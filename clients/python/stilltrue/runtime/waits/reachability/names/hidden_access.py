"""Ways to the globals and classes of the application's modules that neither names nor references show.

Rules:

1. A module of the application's own may have a function that gives access to anything, under any name (``from importlib import
   import_module as load``), or a module of the standard library's by which objects are made or found from text or bytes
   (``pickle``, ``multiprocessing``, ``runpy``). So may a function that imports one.
2. A function that has the full name of one of the application's modules as a text may give it to a library that imports it.
3. A module may be loaded when it is first used: then its code has not run yet.
4. The main module can be imported if it is in ``sys.modules`` under another name, or is a global of another module.
"""

from __future__ import annotations

import gc
import queue
import re
import sys
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import _base
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.frames import LISTING_FRAMES
from stilltrue.runtime.introspection.origins import is_own_code
from stilltrue.runtime.look.called_code.call_graph import names_in
from stilltrue.runtime.look.called_code.methods import names_imported
from stilltrue.runtime.own_threads import all_threads, application_threads
from stilltrue.runtime.waits.orphaned_locks.census import codes_within
from stilltrue.runtime.waits.reachability.names.code_names import ANYTHING

_FROM_TEXT_OR_BYTES = frozenset(
    {"pickle", "_pickle", "cloudpickle", "dill", "shelve", "joblib", "multiprocessing", "importlib", "pkgutil", "runpy", "imp"}
    | {"pydoc", "zipimport", "code", "codeop", "doctest", "profile", "cProfile", "timeit", "logging.config", "unittest.mock"}
)
_HARMLESS = frozenset({"version", "PackageNotFoundError", "cpu_count", "files", "resources", "metadata"})
_ENDING_WAITS = frozenset({threading.__file__, queue.__file__, _base.__file__})
_DOTTED = re.compile(r"([A-Za-z_]\w*)(?:\.\w+)+(?::\w+)?")
_MAIN_NAMES = frozenset({"__main__", "__mp_main__"})
_LAZY = "importlib.util"
_LISTING = frozenset(map(id, (all_threads, application_threads, LISTING_FRAMES, gc.get_objects, gc.get_referrers)))


def may_be_reached(modules: Iterable[ModuleType | None], functions: Iterable[tuple[CodeType, Mapping[str, Any]]]) -> bool:
    """Whether globals of these modules, the application's own, may be reached in such ways.

    ``functions``: all functions of the application's own, each by its code and globals.
    """
    own = [one for one in modules if type(one) is ModuleType]
    if any(_gives_access(value, name) for one in own for name, value in list(one.__dict__.items())):
        return True
    roots = frozenset(one.__name__.partition(".")[0] for one in own) - _MAIN_NAMES
    for code, names in functions:
        if not is_own_code(code):
            continue
        if any(text.partition(".")[0] in roots for text in _dotted_texts(code)):
            return True
        if any(_is_from_text_or_bytes(one) for one in names_imported(names_in(code), names)):
            return True
    return any(type(one).__module__ == _LAZY for one in list(sys.modules.values()))


def lists_under_another_name(names: Iterable[str]) -> bool:
    """Whether one of these modules has a function that lists all threads, frames or objects, under whichever name."""
    modules = (sys.modules.get(name) for name in names)
    return any(
        type(one) is ModuleType and any(map(_LISTING.__contains__, map(id, list(one.__dict__.values())))) for one in modules
    )


def main_has_another_name(modules: Iterable[ModuleType | None]) -> bool:
    """Whether the main module can be reached by name or from another of these modules (rule 4)."""
    main = sys.modules.get("__main__")
    named = any(one is main and name not in _MAIN_NAMES for name, one in list(sys.modules.items()))
    return named or any(value is main for one in modules if type(one) is ModuleType for value in list(one.__dict__.values()))


def _gives_access(value: Any, name: str) -> bool:
    """Whether a global of this name and value gives access to anything (rule 1)."""
    kind = type(value)
    if kind is ModuleType:
        return _is_from_text_or_bytes(value.__name__)
    if name == "__getattr__":
        return kind is not FunctionType or not is_own_code(value.__code__)
    if kind not in (FunctionType, BuiltinFunctionType, type):
        return value is sys.modules
    own = str(getattr(value, "__name__", ""))
    is_method = kind is FunctionType and value.__code__.co_filename in _ENDING_WAITS and value.__qualname__ != own
    is_known = own in ANYTHING or _is_from_text_or_bytes(str(getattr(value, "__module__", "")))
    return is_method or (is_known and own not in _HARMLESS)


def _is_from_text_or_bytes(module: str) -> bool:
    return module in _FROM_TEXT_OR_BYTES or module.partition(".")[0] in _FROM_TEXT_OR_BYTES


@cached_by_code
def _dotted_texts(code: CodeType) -> tuple[str, ...]:
    """The texts in a function, and in those within it, that look like the full name of something in a module."""
    texts = (text for one in codes_within(code) for text in one.co_consts if type(text) is str)
    return tuple(text for text in texts if _DOTTED.fullmatch(text))
