"""The origin of a frame's code: the application, the agent, gRPC or the standard library."""

from __future__ import annotations

import os
import re
from enum import Enum
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from stilltrue.runtime import compat, own_packages
from stilltrue.runtime.bytecode.qualified_names import qualname_of
from stilltrue.runtime.introspection.code_cache import cached_by_code

_OURS = str(Path(__file__).parents[2]) + os.sep  # not "stilltrue_detector" beside it
_STDLIB = str(Path(os.__file__).parent) + os.sep
_FEEDS = "OutgoingRequests.__next__"
_OF_DATACLASSES = "__create_fn__.<locals>."
_OF_NAMEDTUPLES = ("_tuple_new",)
"""Methods that the standard library makes from text."""
_OF_SQLALCHEMY = re.compile(r"<sqlalchemy generated .* sqlalchemy\.")
"""The files of the functions that SQLAlchemy makes from text; before 2.1 these are known by their names only."""
_NAMES_OF_SQLALCHEMY = ("target", "fn")
_SEMAPHORES_OF_ANYIO = re.compile(r"[/\\]anyio[/\\](_backends[/\\]_asyncio|_core[/\\]_synchronization)\.py$")
"""The files with anyio's semaphores, which count as the standard library's: they stand for those of asyncio."""
_DJANGO_DB = re.compile(r"[/\\]django[/\\]db[/\\]")
_DATABASES = frozenset({"sqlalchemy", "psycopg", "psycopg2", "psycopg_pool", "asyncpg"})
_TRACERS = frozenset({"ddtrace", "elasticapm", "newrelic", "opentelemetry", "sentry_sdk"})
_HTTP_LIBRARIES = frozenset(
    {
        *("requests", "urllib3", "httpx", "httpcore", "aiohttp", "h11", "h2", "anyio", "asgiref", "flask", "werkzeug"),
        *("django", "starlette", "fastapi", "uvicorn", "gunicorn", "hypercorn", "waitress"),
    }
)
"""Libraries between the application and HTTP, left out of the stacks shown to people."""


def position_of(frame: FrameType) -> str:
    """A frame's position for people."""
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {qualname_of(frame.f_code)}"


def is_ours(code: CodeType) -> bool:
    """Whether this is the agent's own code."""
    return _origin(code) is Origin.OURS


def feeds_requests(code: CodeType) -> bool:
    """Whether this is the agent's own code that asks the application's iterator for the next request of a call."""
    return qualname_of(code) == _FEEDS and is_ours(code)


def is_library(code: CodeType) -> bool:
    """Whether this is code of the standard library."""
    return _origin(code) is Origin.LIBRARY


def is_application(code: CodeType) -> bool:
    """Whether this is neither the agent's, gRPC's nor the standard library's code."""
    return _origin(code) is Origin.APPLICATION


def is_application_callback(callback: Any) -> bool:
    """Whether a callback runs code that is neither the agent's, gRPC's nor the standard library's."""
    code, _, _ = compat.code_behind(callback)
    return code is not None and is_application(code)


def acts_for_application(callback: Any) -> bool:
    """Whether the application wrote or passed a callback: its own function, a library's method that makes others go on
    (``queue.put``, ``thread.start``, ``future.set_result``), or a call on a channel. The internals of libraries are not.
    """
    code, _, owner = compat.code_behind(callback)
    if code is None:
        return compat.is_compiled_function(callback) and not compat.is_asyncio_internal(callback)
    if is_application(code):
        return True
    if is_library(code):
        return not code.co_name.startswith("_")
    return compat.is_channel(type(owner))


@cached_by_code
def is_own_code(code: CodeType) -> bool:
    """Whether this is the application's own code, not a library's. A package that is the application's own is no library."""
    return is_application(code) and not (own_packages.is_installed_library(code.co_filename) or _is_made_by_library(code))


def _is_made_by_library(code: CodeType) -> bool:
    """Whether a library has made this function of its own from text, or has compiled it with Cython."""
    file = code.co_filename
    if file.endswith(".pyx"):
        name = own_packages.file_of(file.replace("\\", "/").partition("/")[0])
        return name is not None and own_packages.is_installed_library(name)
    return _is_made_by_sqlalchemy(code)


def _is_made_by_sqlalchemy(code: CodeType) -> bool:
    file = code.co_filename
    return _OF_SQLALCHEMY.match(file) is not None or (file == "<string>" and code.co_names == _NAMES_OF_SQLALCHEMY)


def is_of_own_module(kind: type) -> bool:
    """Whether a class was made in a module of the application's own."""
    return is_own_file(own_packages.file_of(compat.module_of(kind)))


def is_own_file(name: str | None) -> bool:
    """Whether it is a file of the application's own, not of a library."""
    return name is not None and origin_of_file(name) is Origin.APPLICATION and not own_packages.is_installed_library(name)


@cached_by_code
def is_http_library(code: CodeType) -> bool:
    """Whether this is code of a library between the application and HTTP."""
    return own_packages.name_of(code.co_filename) in _HTTP_LIBRARIES


def is_of_http_library(kind: type) -> bool:
    """Whether a class is one of such a library's."""
    return compat.module_of(kind).partition(".")[0] in _HTTP_LIBRARIES


@cached_by_code
def is_database_library(code: CodeType) -> bool:
    """Whether this is code of a library between the application and a database."""
    file = code.co_filename
    name = own_packages.name_of(file)
    return name in _DATABASES or (name == "django" and _DJANGO_DB.search(file) is not None) or _is_made_by_sqlalchemy(code)


@cached_by_code
def is_tracing_library(code: CodeType) -> bool:
    """Whether this is code of a library that only watches the program."""
    return own_packages.name_of(code.co_filename) in _TRACERS


class Origin(Enum):
    """The origin of code."""

    OURS = "ours"
    GRPC = "grpc"
    LIBRARY = "library"
    APPLICATION = "application"


@cached_by_code
def _origin(code: CodeType) -> Origin:
    made = code.co_filename == "<string>" and (
        qualname_of(code).startswith(_OF_DATACLASSES) or code.co_names == _OF_NAMEDTUPLES
    )
    return Origin.LIBRARY if made or is_of_anyios_semaphore(code) else origin_of_file(code.co_filename)


@cached_by_code
def is_of_anyios_semaphore(code: CodeType) -> bool:
    """Whether it is a method of one of anyio's semaphores."""
    return qualname_of(code).startswith("Semaphore") and _SEMAPHORES_OF_ANYIO.search(code.co_filename) is not None


def origin_of_file(name: str) -> Origin:
    """The origin of the code in a file, by the file's name."""
    if name.startswith(_OURS):
        return Origin.OURS
    if compat.is_grpc(name):
        return Origin.GRPC
    if name.startswith("<frozen") or (name.startswith(_STDLIB) and own_packages.package_of(name) is None):
        return Origin.LIBRARY
    if compat.is_loop_file(name):  # also asyncio's backport
        return Origin.LIBRARY
    return Origin.APPLICATION
