"""The trace of a party's call, from the call's metadata or OpenTelemetry."""

from __future__ import annotations

import sys
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.threads_and_tasks import Place

_B3_SINGLE = "b3"
_HEADERS = ("traceparent", "x-b3-traceid", _B3_SINGLE)
_TRACE_ID_LENGTHS = (16, 32)


def trace_of(place: Place) -> str:
    """The trace id (hexadecimal) of the call served at ``place``; empty if unknown."""
    try:
        return _in_metadata(place.context) or _in_span(place)
    except Exception:  # noqa: BLE001 - evidence only
        return ""


def _in_metadata(context: Any) -> str:
    if context is None:
        return ""
    found = {key.lower(): value for key, value in context.invocation_metadata() or () if key.lower() in _HEADERS}
    for name in _HEADERS:
        value = found.get(name)
        if isinstance(value, str):
            parts = value.split("-")
            trace = parts[1] if name == "traceparent" and len(parts) > 1 else parts[0]
            if len(trace) in _TRACE_ID_LENGTHS and trace.strip("0"):
                return trace.lower()
    return ""


def _in_span(place: Place) -> str:
    """The current OpenTelemetry span of a task. The context of a running thread cannot be read."""
    context = None if place.task is None or "opentelemetry.trace" not in sys.modules else compat.context_of(place.task)
    for value in () if context is None else context.values():
        for span in value.values() if isinstance(value, dict) else ():
            read = getattr(span, "get_span_context", None)
            if read is not None and read().trace_id:
                return f"{read().trace_id:032x}"
    return ""
