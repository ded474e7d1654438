"""A plugin for pytest that puts one mutant into the code: the module's source is changed in one place as it is imported.

``STILLTRUE_MUTANT`` names it. A mutant whose text is not in the module exactly once does not fit the code any more: that is an
error, and no catch.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import CodeType, ModuleType

from tests.mutants.table import MUTANTS, Mutant

VARIABLE = "STILLTRUE_MUTANT"
MISFIT = "this mutant does not fit the code any more"


class _Mutated(importlib.machinery.SourceFileLoader):
    """Loads a module with one change in it; its bytecode is neither read nor written."""

    def __init__(self, fullname: str, path: str, mutant: Mutant) -> None:
        super().__init__(fullname, path)
        self._mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        """The changed code."""
        source = self.get_data(self.path).decode()
        if source.count(self._mutant.old) != 1:
            sys.exit(f"{MISFIT}: {self._mutant.name!r}: its text is {source.count(self._mutant.old)} times in {fullname}")
        code = compile(source.replace(self._mutant.old, self._mutant.new), self.path, "exec", dont_inherit=True)
        assert isinstance(code, CodeType)
        return code


class _Finder:
    """Finds the one module that is changed, before the usual finders do."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec of the changed module; None for any other."""
        if fullname != self._mutant.module:
            return None
        found = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if found is None or found.origin is None:
            return None
        return importlib.util.spec_from_file_location(
            fullname, found.origin, loader=_Mutated(fullname, found.origin, self._mutant)
        )


if VARIABLE in os.environ:  # no function: of code that mentions all modules a proof would say that it may reach anything
    _mutant = next(one for one in MUTANTS if one.name == os.environ[VARIABLE])
    if _mutant.module in sys.modules:
        sys.exit(f"{MISFIT}: {_mutant.module} was imported before it could be changed")
    sys.meta_path.insert(0, _Finder(_mutant))
