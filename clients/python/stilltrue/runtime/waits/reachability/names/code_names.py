"""The names that the application's code mentions: which functions may reach a global, and which names a frame may still use."""

from __future__ import annotations

import sys
from types import AsyncGeneratorType, CodeType, CoroutineType, FrameType, FunctionType, GeneratorType
from typing import Any

from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.collector import objects_of
from stilltrue.runtime.introspection.frames import no_collection
from stilltrue.runtime.introspection.origins import is_own_code
from stilltrue.runtime.look.called_code.call_graph import names_in
from stilltrue.runtime.look.called_code.methods import names_imported
from stilltrue.runtime.look.code.instructions_ahead import ahead_of
from stilltrue.runtime.look.code.lookups import looked_up
from stilltrue.runtime.look.code.names import ATTRIBUTES
from stilltrue.runtime.own_packages import is_library_to_load
from stilltrue.runtime.waits.holders.with_blocks import instructions_of
from stilltrue.runtime.waits.orphaned_locks.census import codes_within

_ANYWHERE = frozenset(
    {"globals", "vars", "eval", "exec", "__globals__", "modules", "__main__", "import_module", "__import__"}
) | frozenset(
    {"getmodule", "import_string", "resolve_name", "load_module", "exec_module", "SourceFileLoader", "run_module", "run_path"}
    | {"unsafe_load"}
)
"""Application code that mentions one of these may reach any global."""
LOCALS = _ANYWHERE | {"locals"}
"""Code that mentions one of these may read any of its variables."""
_EVERYTHING = frozenset(
    {"_current_frames", "get_objects", "get_referrers", "_active", "__subclasses__", "f_globals", "f_locals"}
)
"""Application code that mentions one of these may reach any object, or objects of any class."""
_BY_ADDRESS = frozenset({"cast", "from_address"})
ANYTHING = (_ANYWHERE | _EVERYTHING | {"enumerate", "import_from_string", "namedAny", "locate"}) - {"modules"}
"""The names of functions that give access to any global or object."""
_PAUSED = (GeneratorType, CoroutineType, AsyncGeneratorType)
_COUNTED = frozenset({FunctionType, *_PAUSED})


def census() -> tuple[list[FunctionType], list[Any]]:
    """All functions, coroutines and generators of the process."""
    with no_collection:
        objects = objects_of(_COUNTED)
        functions = [one for one in objects if type(one) is FunctionType and one.__code__.co_name != "<module>"]
        paused = [one for one in objects if type(one) in _PAUSED]
        del objects
    return functions, paused


def properties() -> list[Any]:
    """All properties of the process."""
    with no_collection:
        return [one for one in objects_of(frozenset({property})) if type(one) is property]


@cached_by_code
def comes_by_anything(code: CodeType) -> bool:
    """Whether it is application code that asks for all threads, frames or objects."""
    if not is_own_code(code):
        return False
    if not _EVERYTHING.isdisjoint(code.co_names) or not _EVERYTHING.isdisjoint(looked_up(code)):
        return True
    if "py_object" in code.co_names and not _BY_ADDRESS.isdisjoint(code.co_names):
        return True
    asked = instructions_of(code) if "enumerate" in code.co_names else ()
    return any(one.opname in ATTRIBUTES and one.argval == "enumerate" for one in asked)


@cached_by_code
def may_name_anything(code: CodeType) -> bool:
    """Whether it is application code that may reach any global."""
    return is_own_code(code) and not (_ANYWHERE.isdisjoint(code.co_names) and _ANYWHERE.isdisjoint(looked_up(code)))


def may_name_anything_ahead(frame: FrameType) -> bool:
    """As :func:`may_name_anything`, for the rest of a frame's code. A module that is yet to be loaded may name anything."""
    if not is_own_code(frame.f_code):
        return False
    ahead = ahead_of(frame.f_code, frame.f_lasti)
    words = ahead.names | ahead.stored | ahead.mentioned | ahead.markers if ahead.known else names_in(frame.f_code)
    return not _ANYWHERE.isdisjoint(words) or imports_another(words, frame.f_globals)


def imports_another(words: frozenset[str], names: dict[str, Any]) -> bool:
    """Whether code that mentions these words imports a module, other than a library's, that is yet to be loaded."""
    return any(
        sys.modules.get(one) is None and one.partition(".")[0] not in sys.stdlib_module_names and not is_library_to_load(one)
        for one in names_imported(words, names)
    )


@cached_by_code
def names_of(code: CodeType) -> frozenset[str]:
    """All names and strings of a function and those within it."""
    every = list(codes_within(code))
    texts = (text for one in every for text in one.co_consts if type(text) is str)
    return frozenset(name for one in every for name in one.co_names).union(texts)


def names_ahead(frame: FrameType) -> set[str]:
    """The names that a frame may still use."""
    ahead = ahead_of(frame.f_code, frame.f_lasti)
    if not ahead.known:
        return set(names_of(frame.f_code))
    within = (names_in(one) for one in ahead.functions)
    return set(ahead.names | ahead.stored | ahead.mentioned).union(*within)
