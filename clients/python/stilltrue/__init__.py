"""The Stilltrue agent: joins a gRPC process to the detector, and queries it.

The names here are loaded on first use, so that the pure modules can be imported without gRPC.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from stilltrue.version import __version__

if TYPE_CHECKING:
    from stilltrue.agent import Agent
    from stilltrue.instrumentation import instrument, uninstrument
    from stilltrue.protocol.step import StepError
    from stilltrue.query import Detector
    from stilltrue.settings import SettingRefusedError

__all__ = ["Agent", "Detector", "SettingRefusedError", "StepError", "__version__", "instrument", "uninstrument"]

_WHERE = {
    "Agent": "stilltrue.agent",
    "Detector": "stilltrue.query",
    "SettingRefusedError": "stilltrue.settings",
    "StepError": "stilltrue.runtime.declared.atomic",
    "instrument": "stilltrue.instrumentation",
    "uninstrument": "stilltrue.instrumentation",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'stilltrue' has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(_WHERE[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
