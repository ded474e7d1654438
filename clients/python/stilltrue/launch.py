"""Starts a program with the agent in it, without a change of its code: `stilltrue run`, and what happens in its processes.

``run`` puts a ``sitecustomize`` on ``PYTHONPATH`` and becomes the program. Python imports it in the program and in every child
that inherits the environment; it calls :func:`prepare`, and goes on to the ``sitecustomize`` that would have been found without
it. The agent is loaded when the process makes its first channel or server, so helpers are not members.
"""

from __future__ import annotations

import importlib
import logging
import os
import re
import shutil
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path

from stilltrue.http.hooks import join_when_used
from stilltrue.runtime.deferral import attach_when_used
from stilltrue.runtime.greenlets import would_be_held_up

_LOGGER = logging.getLogger("stilltrue")
SITE = str(Path(__file__).with_name("site"))
"""The directory of our ``sitecustomize``."""
STARTED = "STILLTRUE_RUN_PID"
"""The process that ``run`` became; its presence says that a process was started by ``run``, or by such a one."""
_SERVERS = frozenset(
    {"gunicorn", "uvicorn", "hypercorn", "daphne", "granian", "celery", "flask", "waitress", "waitress-serve", "cheroot"}
)
"""Programs that run another one, which is named among their arguments."""
_APPLICATION = re.compile(r"(?:--?app=?)?([A-Za-z_][\w.]*)(?::[\w.()]+)")
_WORKERS = ("from multiprocessing.spawn import", "from multiprocessing.forkserver import")
_ADDRESS = re.compile(r"(?!https?://)\S+:0*([1-9]\d{0,4})")
_PORT_MAX = 65535
GRPCIO_OLDEST = (1, 62, 3)
NOT_FOUND, NOT_EXECUTABLE = 127, 126


def run(command: Sequence[str], settings: Mapping[str, str]) -> int:
    """Become ``command``, with ``settings`` (``STILLTRUE_...``) in its environment. An exit code where that fails."""
    environment = dict(os.environ)
    add_site(environment)
    environment.update(settings)
    environment[STARTED] = str(os.getpid())
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvpe(command[0], list(command), environment)
    except FileNotFoundError:
        sys.stderr.write(f"stilltrue run: no such command: {command[0]}\n")
        return NOT_FOUND
    except OSError as error:
        sys.stderr.write(f"stilltrue run: {command[0]}: {error.strerror}\n")
        return NOT_EXECUTABLE


def is_address(text: str) -> bool:
    """Whether ``text`` is HOST:PORT, or several separated by commas: a flag whose value was forgotten takes the next word."""
    found = [_ADDRESS.fullmatch(part.strip()) for part in text.split(",")]
    return all(each is not None and int(each[1]) <= _PORT_MAX for each in found)


def add_site(environment: MutableMapping[str, str]) -> None:
    """Put our ``sitecustomize`` before any other on ``PYTHONPATH``, once."""
    paths = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path and path != SITE]
    environment["PYTHONPATH"] = os.pathsep.join((SITE, *paths))


def copy_package(folder: Path) -> Path:
    """Copy the agent into ``folder``, for programs whose environments do not have it: what to put on ``PYTHONPATH``."""
    package = folder / "stilltrue"
    shutil.copytree(Path(__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    return package / "site"


def prepare() -> None:
    """Have this process join when it makes its first channel or server. Idempotent; called by ``sitecustomize``."""
    if not is_helper(sys.orig_argv, os.environ):
        attach_when_used(_attach)
        join_when_used(_attach)


def prepare_beside_opentelemetry() -> None:
    """As :func:`prepare`, for a program that `stilltrue run` started and whose ``sitecustomize`` is OpenTelemetry's.

    That one imports no other; but it calls this entry point.
    """
    if os.environ.get(STARTED):
        prepare()


def is_helper(arguments: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether this process runs a line of code (``-c``) not given to ``run``: a tool's, or one of Python's own helpers.

    The workers that multiprocessing starts are such lines, too; they are not helpers.
    """
    code = _code_of(arguments)
    return code is not None and not code.startswith(_WORKERS) and environment.get(STARTED) != str(os.getpid())


def _code_of(arguments: Sequence[str]) -> str | None:
    """The code after ``-c`` in an interpreter's arguments."""
    for index, argument in enumerate(arguments[1:], 1):
        if re.fullmatch(r"-[A-Za-z]*c", argument):
            return arguments[index + 1] if index + 1 < len(arguments) else ""
        if argument in ("-W", "-X"):
            continue
        if not argument.startswith("-") and arguments[index - 1] not in ("-W", "-X"):
            return None
        if re.fullmatch(r"-[A-Za-z]*m.*", argument):
            return None
    return None


def program_name(arguments: Sequence[str], main_file: str | None = None) -> str:
    """What to call the service of a program that was started with ``arguments`` (``sys.argv``).

    A script by its name without the ending, a package by its name, and an application that a server runs by its module.
    """
    path = Path(main_file or (arguments[0] if arguments else ""))
    stem = path.parent.name if path.stem in {"__main__", "__init__"} else path.stem
    if stem == "manage":  # Django's, which every project has; it names the project
        stem = os.environ.get("DJANGO_SETTINGS_MODULE", stem).partition(".")[0]
    if stem in _SERVERS:
        named = next((found[1] for one in arguments[1:] if (found := _APPLICATION.fullmatch(one))), None)
        return named or stem
    return stem if stem not in {"", "-c", "-m"} else "python"


def _check_runtime() -> None:
    """Raise ``RuntimeError`` on a gRPC that the agent does not know: a program's own environment may have any.

    A program that speaks HTTP alone has not imported it yet.
    """
    importlib.import_module("grpc")
    text = str(getattr(sys.modules.get("grpc"), "__version__", "0"))
    if tuple(map(int, re.findall(r"\d+", text)[:3])) < GRPCIO_OLDEST:
        raise RuntimeError(f"grpcio {text} is older than {'.'.join(map(str, GRPCIO_OLDEST))}")


def _attach() -> None:
    """Join this process. Whatever goes wrong, the program goes on without the agent."""
    if would_be_held_up():
        return
    try:
        _check_runtime()
        from stilltrue.instrumentation import instrument  # noqa: PLC0415 - loads gRPC and protobuf, which few processes need

        named = os.environ.get("STILLTRUE_SERVICE") or os.environ.get("OTEL_SERVICE_NAME")
        main_file = getattr(sys.modules.get("__main__"), "__file__", None)
        instrument(named or program_name(sys.argv, main_file))
    except Exception as error:  # noqa: BLE001 - fail open
        _LOGGER.warning("not joined: %s: %s; this process is not watched", type(error).__name__, error)
