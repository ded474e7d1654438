"""The application's own classes, as holders of what their methods and attributes lead to.

Rules:

1. Whoever can reach a class or one of its objects can call its methods. So a class leads to what these have. Its objects, the
   classes derived from it and the names of its module refer to it.
2. Python lists the classes derived from each class, by weak references. The application's code that mentions this list may
   reach any object. A library may use the list of a class of its own: so all bases must be the application's, Python's,
   gRPC's, or those of an installed library written in Python, none of whose files mentions the list.
3. What an abstract class keeps of others, it only compares.
"""

from __future__ import annotations

import functools
import importlib.machinery
import sys
import weakref
from itertools import islice
from pathlib import Path
from types import BuiltinFunctionType
from typing import Any

from stilltrue.runtime import compat, own_packages
from stilltrue.runtime.introspection.origins import is_of_own_module
from stilltrue.runtime.own_ref import OwnRef

_LIST = b"__subclasses__"
_FILES_MAX = 1_000
_BYTES_MAX = 10_000_000
"""The files of a larger library are not read: it may mention the list."""
_COMPILED = tuple(importlib.machinery.EXTENSION_SUFFIXES)


def is_own_class(thing: Any) -> bool:
    """Whether it is a class of the application's own that leads only where the search goes (rules 1 and 2)."""
    if not issubclass(type(thing), type):
        return False
    bases = type.__getattribute__(thing, "__mro__")
    return is_of_own_module(thing) and all(_is_plain(one) for one in (*bases, *type(thing).__mro__))


def _is_plain(kind: type) -> bool:
    module = compat.module_of(kind)
    if module.partition(".")[0] in (sys.stdlib_module_names | {"grpc"}) or is_of_own_module(kind):
        return True
    file = own_packages.file_of(module)
    package = own_packages.package_of(file) if file is not None and file.endswith(".py") else None
    return package is not None and not _may_list_derived(package)


@functools.lru_cache(maxsize=1_000)
def _may_list_derived(package: str) -> bool:
    """Whether an installed package, given by its path, may list the classes that are derived from its own."""
    path = Path(package)
    files = [path] if path.is_file() else list(islice((one for one in path.rglob("*") if one.is_file()), _FILES_MAX + 1))
    size = 0
    for one in files:
        text = one.read_bytes() if one.suffix == ".py" else b""
        size += len(text)
        if _LIST in text or size > _BYTES_MAX or one.name.endswith(_COMPILED):
            return True
    return len(files) > _FILES_MAX


class _Derived:
    """A class to whose weak reference nothing else refers but its base class's list."""


def is_followed(kind: type, weak: list[Any]) -> bool:
    """Whether others than the bases of a class, and abstract classes that compare it, have one of these weak references to it.

    ``weak``: those that the caller found (rules 2 and 3).
    """
    own, probes = list(weak), weakref.getweakrefs(_Derived)
    probed = list(probes)
    overhead = max(sys.getrefcount(one) for one in probed) - 1
    bases = len(type.__getattribute__(kind, "__bases__"))
    return any(
        not _compares(one.__callback__) and (one.__callback__ is not None or sys.getrefcount(one) - overhead > bases)
        for one in own
        if type(one) is not OwnRef
    )


def _compares(callback: Any) -> bool:
    """Whether it is the callback of an abstract class's weak references."""
    return type(callback) is BuiltinFunctionType and callback.__name__ == "_destroy" and callback.__module__ in (None, "_abc")
