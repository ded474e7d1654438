"""The qualified names of code objects. CPython 3.10 keeps them in functions alone: there they are looked up in the module."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

from stilltrue.runtime.introspection.code_cache import cached_by_code


def qualname_of(code: CodeType) -> str:
    """The qualified name of a code object; on 3.10 its plain name, if no function of its module has it."""
    return code.co_qualname if sys.version_info >= (3, 11) else _looked_up(code)


@cached_by_code
def _looked_up(code: CodeType) -> str:
    return next((name for one, name in _codes_of(code.co_filename) if one is code), code.co_name)


def _codes_of(file: str) -> Iterator[tuple[CodeType, str]]:
    """The code objects of the functions of a module, with their qualified names."""
    for module in list(sys.modules.values()):
        if issubclass(type(module), ModuleType):
            names: dict[str, Any] = ModuleType.__getattribute__(module, "__dict__")
            name, own = names.get("__name__"), names.get("__file__")
            if type(name) is str and (file == f"<frozen {name}>" or (type(own) is str and own == file)):
                yield from _codes_in(list(names.values()), name, set())


def _codes_in(things: list[Any], module: str, seen: set[int]) -> Iterator[tuple[CodeType, str]]:
    """``seen``: the classes, by identity, that were read; a class may refer to itself."""
    for thing in things:
        if issubclass(type(thing), type):
            # "_frozen_importlib": its classes do not know its later name
            if id(thing) not in seen and thing.__module__ in (module, "_frozen_importlib"):
                seen.add(id(thing))
                yield from _codes_in(list(type.__getattribute__(thing, "__dict__").values()), module, seen)
            continue
        inner = (
            thing.fget if type(thing) is property else thing.__func__ if type(thing) in (staticmethod, classmethod) else thing
        )
        while type(inner) is FunctionType:
            yield from _codes_within(inner.__code__, inner.__qualname__)
            inner = inner.__dict__.get("__wrapped__")


def _codes_within(code: CodeType, name: str) -> Iterator[tuple[CodeType, str]]:
    yield code, name
    for one in code.co_consts:
        if type(one) is CodeType:
            yield from _codes_within(one, f"{name}.<locals>.{one.co_name}")
