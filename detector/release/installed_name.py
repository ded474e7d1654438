"""In a checkout: ``stilltrue_detector``, the name that the detector's package has when installed, is the package ``detector``.

Each module exists once, under both names: a class imported by one name is the class imported by the other.
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


class _SecondName(MetaPathFinder, Loader):
    """Finds ``stilltrue_detector.x`` as ``detector.x``."""

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        return spec_from_loader(fullname, self) if fullname.startswith(f"{NAME}.") else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(f"detector{spec.name.removeprefix(NAME)}")
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """It has run; only its own description is put back."""
        if module.__spec__ is not None:
            module.__spec__ = module.__spec__.loader_state


sys.meta_path.insert(0, _SecondName())
sys.modules[NAME] = detector
