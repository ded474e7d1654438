"""Which code can reach an object that is a global of one of the application's own modules.

Rules:

1. Functions of the module reach a global that they name. The application's code elsewhere reaches it if it uses its name as
   an attribute, imports it or has it as a text (``state.jobs``, ``from app.state import jobs``). So does code that uses a
   module in any other way than by an attribute that it names (``getattr(state, name)``, ``read(state)``): it may take any
   global.
2. Nothing of the main module can be imported, so only its own functions name its globals.
3. What has a module can take any of its globals, too: the module leads to them. That it is a global of another module of the
   application's own, under any name, is rule 1; a library that has it as a global makes its globals unknown.
4. Code that imports a module yet to be loaded, or that may get at any module, makes every global unknown. So does a module of
   the application's own that is compiled: what it names is not known.
5. Libraries are assumed not to look up names of the application's modules, other than those of :data:`_LOOKED_UP`.
"""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import CodeType, FrameType, FunctionType, GeneratorType, ModuleType
from typing import Any

from stilltrue.runtime import compat, own_packages
from stilltrue.runtime.bytecode.instructions import instructions
from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.collector import referrers_of
from stilltrue.runtime.introspection.frames import frame_of, no_collection
from stilltrue.runtime.introspection.origins import Origin, is_own_code, origin_of_file
from stilltrue.runtime.look.called_code.call_graph import names_in
from stilltrue.runtime.look.called_code.methods import imported
from stilltrue.runtime.look.code.attributes import attribute_of
from stilltrue.runtime.look.code.names import ATTRIBUTES, IMPORT, variables_read
from stilltrue.runtime.own_ref import OwnRef
from stilltrue.runtime.waits.orphaned_locks.census import codes_within
from stilltrue.runtime.waits.reachability.loops.loop_contents import is_running
from stilltrue.runtime.waits.reachability.names.code_names import (
    imports_another,
    may_name_anything,
    may_name_anything_ahead,
    names_ahead,
    names_of,
)
from stilltrue.runtime.waits.reachability.names.hidden_access import main_has_another_name, may_be_reached
from stilltrue.runtime.waits.reachability.references.leading_objects import Global, LeadingObjects

_HAVING_GLOBALS = (FunctionType, ModuleType, FrameType)
_LOOKED_UP = frozenset({"urlpatterns", "handler400", "handler403", "handler404", "handler500"})
"""Names that Django looks up in the application's modules when the first request comes."""
_EDITABLE = "__editable__"
"""Modules of setuptools, by which it finds packages that were installed by ``pip install -e``."""
_COMPILED = tuple(importlib.machinery.EXTENSION_SUFFIXES)
_PLAIN = frozenset({"__name__", "__doc__", "__file__", "__version__", "__all__", "__package__", "__spec__", "__path__"})
"""Attributes of a module that give no access to its globals."""
_SKIPPED = frozenset({"CACHE", "PRECALL", "PUSH_NULL", "NOP", "EXTENDED_ARG"})
_MOVED = frozenset({"SWAP", "ROT_TWO", "POP_TOP", "COPY"})
_SETS = frozenset({"STORE_ATTR", "DELETE_ATTR"})
_LOCAL_STORES = ("STORE_FAST", "STORE_DEREF")
ANY = "*"
"""Stands for a variable that other functions share."""
Chain = tuple[str, tuple[str, ...]]
"""A variable, and the attributes that are read of it one after the other."""


def module_with(names: dict[str, Any]) -> ModuleType | None:
    """The application's own module with these globals; the main module counts, whoever it belongs to."""
    name = names.get("__name__")
    module = sys.modules.get(name) if isinstance(name, str) else None
    if type(module) is not ModuleType or module.__dict__ is not names:
        return None
    return module if name == "__main__" or _is_own(module) else None


def _is_own(module: ModuleType) -> bool:
    names = module.__dict__
    file = names.get("__file__")
    folders = attribute_of(names.get("__path__"), "_path") if file is None else None  # of a package without a file of its own
    if type(folders) is list and folders:
        file = folders[0]
    if not isinstance(file, str) or str(names.get("__name__")).startswith(_EDITABLE):
        return False
    return origin_of_file(file) is Origin.APPLICATION and not own_packages.is_installed_library(file)


def _is_main(name: str) -> bool:
    return sys.modules.get(name) is sys.modules.get("__main__")


def record_global(names: dict[str, Any], held: int, found: LeadingObjects) -> ModuleType | None:
    """Record that an object is a global of the module with these globals. The module, if it leads to the object (rule 3)."""
    module = module_with(names)
    if module is None:
        found.unknown.add(held)
        return None
    if held not in found.things or type(found.things[held]) is ModuleType:
        return None  # rule 1
    found.modules[id(names)] = str(names["__name__"])
    for name in [name for name, one in names.items() if id(one) == held]:
        found.names.setdefault((id(names), name), set()).add(held)
        if name in _LOOKED_UP or (name.startswith("__") and name.endswith("__")):  # ``__getattr__``
            found.unknown.add(held)
    if _is_main(str(names["__name__"])):
        return None
    found.referrers.setdefault(held, set()).add(id(module))
    return module


def read_own_code(found: LeadingObjects, functions: Iterable[FunctionType], paused: Iterable[Any]) -> None:
    """Store the functions, suspended coroutines and generators among these that may name a global. Keeps none alive."""
    every = (one for one in list(sys.modules.values()) if type(one) is ModuleType)
    modules = [one for one in every if _is_own(one) or _is_main(one.__name__)]
    found.is_compiled = any(str(one.__dict__.get("__file__")).endswith(_COMPILED) for one in modules)
    spaces = {id(one.__dict__) for one in modules}
    found.own = [one.__name__ for one in modules]
    del every, modules
    found.functions = [
        (OwnRef(one), one.__code__, one.__globals__)
        for one in functions
        if id(one.__globals__) in spaces or is_own_code(one.__code__)
    ]
    for one in paused:
        code, frame = compat.code_of(one), frame_of(one)
        if code is not None and frame is not None and not is_running(one):  # else the frames of its thread show it
            named = names_ahead(frame) if is_own_code(code) or id(frame.f_globals) in spaces else None
            if named:
                found.paused.append((OwnRef(one), code, frame.f_globals, named))


def functions_naming(names: set[Global], found: LeadingObjects) -> list[Any]:
    """The functions and generators that can reach these globals lead to them; frames and tasks that can are reachers."""
    spaces = {space for space, _ in names}
    further: dict[int, Any] = {}
    for weak, code, space in found.functions:
        reached = list(_reached_from(code, space, names_of(code), names, found))
        one = weak() if reached else None
        for held in reached if one is not None else ():
            found.referrers.setdefault(held, set()).add(id(one))
            if id(one) not in found.things:
                further[id(one)] = one
    further.update((id(one), one) for one in _record_paused(names, found))
    running = ((ident, frame) for ident, frames in found.running.items() for frame in frames)
    for ident, frame in running:
        if is_own_code(frame.f_code) or id(frame.f_globals) in spaces:
            for held in _reached_from(frame.f_code, frame.f_globals, names_ahead(frame), names, found):
                found.reachers.setdefault(held, set()).add(ident)
    return list(further.values())


def _record_paused(names: set[Global], found: LeadingObjects) -> list[Any]:
    """Record who can reach the globals that suspended coroutines and generators can reach; the generators that lead to some."""
    further = []
    for weak, code, space, ahead in found.paused:
        reached = list(_reached_from(code, space, ahead, names, found))
        one = weak() if reached else None
        if one is None:
            continue
        task = found.loops.suspended.get(id(one))
        if task is None and type(one) is not GeneratorType:
            found.is_whole = False  # any party that resumes it may reach the global
        for held in reached:
            if task is None:
                found.referrers.setdefault(held, set()).add(id(one))
            else:
                found.reachers.setdefault(held, set()).add(found.loops.reacher(task))
        further += [one] if task is None and id(one) not in found.things else []
    return further


def may_be_reached_otherwise(found: LeadingObjects) -> bool:
    """Whether the recorded globals may be reached in other ways than by these names (rule 4)."""
    everywhere = any(not _is_main(name) for name in found.modules.values())
    own = [sys.modules.get(name) for name in found.own]
    if everywhere and (found.is_compiled or may_be_reached(own, ((code, space) for _, code, space in found.functions))):
        return True
    if any(map(_is_main, found.modules.values())) and main_has_another_name(own):
        return True
    del own
    for _, code, space in found.functions:
        may_import = everywhere or id(space) in found.modules
        if may_name_anything(code) or (may_import and (imports_another(names_in(code), space) or _imports_part(code, space))):
            return True
    if any(may_name_anything_ahead(frame) for frames in found.running.values() for frame in frames):
        return True
    spaces = tuple(sys.modules[name].__dict__ for name in found.modules.values() if name in sys.modules)
    with no_collection:
        holders = referrers_of(spaces)  # such as an interactive interpreter
    known = {id(found.holders), id(spaces), *map(id, found.functions), *map(id, found.paused)}
    return any(type(one) not in _HAVING_GLOBALS and id(one) not in known for one in holders)


def _reached_from(
    code: CodeType, space: dict[str, Any], words: Container[str], names: Iterable[Global], found: LeadingObjects
) -> Iterator[int]:
    """The objects that are these globals, and that code with the globals ``space`` and these words can reach (rule 1)."""
    own, elsewhere = is_own_code(code), None
    for place, name in names:
        if place == id(space):
            reaches = name in words
        elif not own or _is_main(found.modules[place]):
            continue
        else:
            if elsewhere is None:
                elsewhere = names_elsewhere(code)
            reaches = (name in elsewhere and name in words) or takes_any_global(code, space)
        if reaches:
            yield from found.names[place, name]


# -- what code says ----------------------------------------------------------------------------------------------------


@cached_by_code
def names_elsewhere(code: CodeType) -> frozenset[str]:
    """The names that a function, or those within it, use as attributes, import, or have as texts: also in tuples."""
    found: set[str] = set()
    for one in codes_within(code):
        for const in one.co_consts:
            found.update(text for text in (const if type(const) is tuple else (const,)) if type(text) is str)
        variables = {each.argval for each in instructions(one) if each.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
        others = {each.argval for each in instructions(one) if each.opname not in ("LOAD_GLOBAL", "LOAD_NAME")}
        found.update(name for name in one.co_names if name not in variables or name in others)
    return frozenset(found)


def takes_any_global(code: CodeType, names: Mapping[str, Any]) -> bool:
    """Whether code with these globals uses one of the application's own modules other than by attributes that it names."""
    local: dict[str, list[Any]] = {}
    for one in _imports_of(code):
        if one.variable:
            local.setdefault(one.variable, []).extend(_imported_by(one, names))
    if any(_ends_at_module(value, ()) for value in local.get(ANY, ())):
        return True
    return any(
        _ends_at_module(value, attributes)
        for variable, attributes in _chains_in(code)
        for value in (names.get(variable), *local.get(variable, ()))
    )


def _ends_at_module(value: Any, attributes: Iterable[str]) -> bool:
    for name in attributes:
        if type(value) is not ModuleType or not _is_own(value):
            return False
        if name.startswith("__") and name not in _PLAIN:
            return True
        value = value.__dict__.get(name)
    return type(value) is ModuleType and _is_own(value)


def _imports_part(code: CodeType, names: Mapping[str, Any]) -> bool:
    """Whether code with these globals imports a module of a package (``from app import jobs``) that is yet to be loaded."""
    for one in _imports_of(code):
        module = _module_named(one.module, names)
        if one.name and module is not None and _is_own(module) and not any(_imported_by(one, names)):
            return True
    return False


@dataclass(frozen=True, slots=True)
class _Import:
    """``module``: with a dot for each level up; ``name``: what is taken from it; ``variable``: a local one that gets it."""

    module: str
    name: str
    variable: str


def _module_named(name: str, names: Mapping[str, Any]) -> ModuleType | None:
    return next(imported(frozenset({IMPORT + name}), names), None)


def _imported_by(one: _Import, names: Mapping[str, Any]) -> list[Any]:
    """What may be imported so by code with these globals."""
    module = _module_named(one.module, names)
    if module is None:
        return []
    if one.name:  # of ``import app.state as state``, too
        is_itself = one.module.rpartition(".")[2] == one.name
        return [found for found in (module.__dict__.get(one.name), module if is_itself else None) if found is not None]
    return [module, sys.modules.get(module.__name__.partition(".")[0])]


@cached_by_code
def _imports_of(code: CodeType) -> tuple[_Import, ...]:
    """The imports in a function, and in those within it."""
    found: list[_Import] = []
    for each in codes_within(code):
        every, module, level = list(instructions(each)), "", 0
        for index, one in enumerate(every):
            if one.opname in ("IMPORT_NAME", "IMPORT_FROM"):
                module = "." * level + str(one.argval) if one.opname == "IMPORT_NAME" else module
                after = next((other for other in every[index + 1 :] if other.opname not in _SKIPPED | _MOVED), None)
                name = str(one.argval) if one.opname == "IMPORT_FROM" else ""
                found.append(_Import(module, name, _local_variable(after)))
            elif one.opname in ("LOAD_CONST", "LOAD_SMALL_INT") and type(one.argval) is int:
                level = one.argval
    return tuple(found)


def _local_variable(stores: Any) -> str:
    """The local variable that an instruction sets, from CPython 3.13 on besides reading one; empty if it does not.

    :data:`ANY` for a global that a function sets.
    """
    if stores is not None and stores.opname == "STORE_GLOBAL":
        return ANY
    if stores is None or not stores.opname.startswith(_LOCAL_STORES):
        return ""
    return str(stores.argval[0] if isinstance(stores.argval, tuple) else stores.argval)


@cached_by_code
def _chains_in(code: CodeType) -> frozenset[Chain]:
    """The variables that a function, or those within it, read, each with what is read of it."""
    chains: set[Chain] = set()
    for each in codes_within(code):
        every = [one for one in instructions(each) if one.opname not in _SKIPPED]
        for index, one in enumerate(every):
            *others, last = variables_read(one) or (None,)
            chains.update((other, ()) for other in others if other is not None)
            if last is not None:
                chains.add((last, tuple(_attributes_after(every, index))))
    return frozenset(chains)


def _attributes_after(every: list[Any], index: int) -> Iterator[str]:
    for one in every[index + 1 :]:
        if one.opname in ATTRIBUTES:
            yield one.argval
            continue
        if one.opname in _SETS:
            yield one.argval
        return
