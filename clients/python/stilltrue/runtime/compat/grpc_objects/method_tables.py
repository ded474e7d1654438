"""Finds the tables in which a gRPC server (threads) looks up its handlers, so that its last interceptor can do so itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from grpc import _interceptor, _utilities

from stilltrue.runtime.compat.grpc_objects.own_code import is_grpc


class MethodTables(tuple[dict[Any, Any], ...]):
    """gRPC's own dictionaries of handlers by method, in the order in which a server looks into them."""

    __slots__ = ()


_TABLE: Any = getattr(_utilities, "DictionaryGenericHandler", None)
_PIPELINE: Any = getattr(_interceptor, "_ServicePipeline", None)
"""What runs a server's interceptors."""


def method_tables(server: Any, interceptor: object) -> MethodTables:
    """The tables of a server, as gRPC keeps it, up to the first handler of the application that decides by itself.

    Empty if they cannot be read, or if ``interceptor`` is not the server's last one. gRPC looks up what is in none.
    """
    pipeline: Any = getattr(server, "interceptor_pipeline", None)
    interceptors = pipeline.interceptors if type(pipeline) is _PIPELINE else ()
    registered, generic = getattr(server, "registered_method_handlers", {}), getattr(server, "generic_handlers", ())
    return _tables(registered, generic) if _is_last(interceptor, interceptors) else MethodTables()


def _is_last(interceptor: object, interceptors: Sequence[Any]) -> bool:
    return bool(interceptors) and interceptors[-1] is interceptor and all(one is not interceptor for one in interceptors[:-1])


def _tables(registered: Any, generic: Iterable[Any]) -> MethodTables:
    tables = [registered]
    for handler in generic:
        if type(handler) is not _TABLE or "service" in vars(handler) or not _is_original(_TABLE.service):
            break
        tables.append(handler._method_handlers)  # noqa: SLF001
    return MethodTables(tables if all(type(table) is dict for table in tables) else ())


def _is_original(method: Any) -> bool:
    """Whether nobody has replaced a method of gRPC."""
    return is_grpc(str(getattr(getattr(method, "__code__", None), "co_filename", "")))
