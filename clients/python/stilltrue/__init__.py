"""The Stilltrue agent: connects a gRPC process to the detector, and queries it.

The public names are loaded on first use, so that the pure modules can be imported without gRPC.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from stilltrue.runtime import at_exit as _at_exit  # noqa: F401 - before the program registers exit handlers
from stilltrue.version import __version__

if TYPE_CHECKING:
    from stilltrue.agent import Agent
    from stilltrue.instrumentation import instrument, uninstrument
    from stilltrue.protocol.step import StepError
    from stilltrue.query import Detector
    from stilltrue.settings import SettingRefusedError

__all__ = ["Agent", "Detector", "SettingRefusedError", "StepError", "__version__", "instrument", "uninstrument"]

_MODULES = {
    "Agent": "stilltrue.agent",
    "Detector": "stilltrue.query",
    "SettingRefusedError": "stilltrue.settings",
    "StepError": "stilltrue.runtime.declared.atomic",
    "instrument": "stilltrue.instrumentation",
    "uninstrument": "stilltrue.instrumentation",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'stilltrue' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
