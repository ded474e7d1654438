"""Calls a function after a module has been imported by any code; imports nothing itself."""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Callable, Container, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Then = Callable[[ModuleType], object]


def after_import(names: Container[str], then: Then) -> Finder:
    """Call ``then`` with each of the named modules that is imported from now on, until the returned finder is removed."""
    finder = Finder(names, then)
    sys.meta_path.insert(0, finder)
    return finder


class Finder:
    """Delegates to the other finders and hooks into the loader they return.

    No subclass of ``MetaPathFinder``: ``importlib.abc`` imports ``random`` and others, and a program may have such modules.
    """

    def __init__(self, names: Container[str], then: Then) -> None:
        self._names = names
        self._then = then
        self._searching = threading.local()

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As ``MetaPathFinder.find_spec``; None for a module that is not one of the names."""
        if fullname not in self._names or getattr(self._searching, "now", False):
            return None
        self._searching.now = True
        try:
            spec = importlib.util.find_spec(fullname)
            if spec is not None and spec.loader is not None:
                _call_after(spec.loader, self._then)
        finally:
            self._searching.now = False
        return spec


def _call_after(loader: Any, then: Then) -> None:
    """Make ``loader``, which serves this one import, call ``then`` once the module is loaded."""
    load = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        load(module)
        then(module)

    loader.exec_module = exec_module
