"""Generic mutant functions, which always return the same value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Function = Callable[..., Any]


def nothing(_right: Function) -> Function:
    """A function that does nothing and returns None."""
    return lambda *_, **__: None


def never(_right: Any) -> property:
    """A property that is always False."""
    return property(lambda _: False)


def always(_right: Function) -> Function:
    """A function that returns True."""
    return lambda *_: True
