"""Makes the installed name ``stilltrue_detector`` an alias of the package ``detector`` in a checkout.

Each module exists once, under both names, so classes imported under either name are identical.
"""

from __future__ import annotations

import importlib
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType

import detector

NAME = "stilltrue_detector"


class _AliasFinder(MetaPathFinder, Loader):
    """Finds ``stilltrue_detector.x`` as ``detector.x``."""

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        return spec_from_loader(fullname, self) if fullname.startswith(f"{NAME}.") else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(f"detector{spec.name.removeprefix(NAME)}")
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the module's own spec; its code has already run."""
        if module.__spec__ is not None:
            module.__spec__ = module.__spec__.loader_state


sys.meta_path.insert(0, _AliasFinder())
sys.modules[NAME] = detector
