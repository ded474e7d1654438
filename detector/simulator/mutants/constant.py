"""Wrong functions that fit anywhere: they always give the same answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Function = Callable[..., Any]


def nothing(_right: Function) -> Function:
    """It does nothing and answers None."""
    return lambda *_, **__: None


def never(_right: Any) -> property:
    """A property that is never so."""
    return property(lambda _: False)


def always(_right: Function) -> Function:
    """It answers yes."""
    return lambda *_: True
