"""Which code and tasks are gRPC's own."""

from __future__ import annotations

import os
from pathlib import Path
from types import CoroutineType

import grpc
import grpc.aio

from stilltrue.runtime.compat.callables import Task, coroutine_of

_GRPC = tuple(
    str(Path(grpc.__file__).parent.with_name(name)) + os.sep
    for name in ("grpc", "grpc_admin", "grpc_channelz", "grpc_csds", "grpc_health", "grpc_reflection", "grpc_status")
)
"""The folders of gRPC's own packages; others whose names begin so (``grpc_clients``) are the application's."""
_GRPC_COMPILED = "grpc/_cython/"
_GRPC_COROUTINES = ("AioServer.", "AioChannel.", "_AioCall.", "_handle_", "_request_call", "_server_", "_schedule_rpc_coro")


def is_grpc(filename: str) -> bool:
    """Whether a file belongs to gRPC."""
    return filename.startswith(_GRPC) or _GRPC_COMPILED in filename


def is_grpc_task(task: Task) -> bool:
    """Whether gRPC created ``task`` for a call or a server."""
    coroutine = coroutine_of(task)
    code = getattr(coroutine, "cr_code", None)
    if code is None:  # compiled; no file name before grpcio 1.66
        return type(coroutine) is not CoroutineType and str(getattr(coroutine, "__qualname__", "")).startswith(_GRPC_COROUTINES)
    return is_grpc(str(getattr(code, "co_filename", "")))
