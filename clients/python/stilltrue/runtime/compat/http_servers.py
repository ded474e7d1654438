"""Reads private parts of HTTP servers: whether one ends the requests that it serves."""

from __future__ import annotations

from typing import Any

from stilltrue.runtime.compat.references import module_of


def waits_for_requests(thing: Any) -> bool:
    """Whether an object belongs to an uvicorn server that lets every request end by itself, also when it is stopped.

    It does so unless it was given ``timeout_graceful_shutdown``.
    """
    if not module_of(type(thing)).startswith("uvicorn."):
        return False
    config = getattr(thing, "__dict__", {}).get("config")
    return config is not None and getattr(config, "timeout_graceful_shutdown", 0) is None
