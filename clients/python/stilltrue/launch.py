"""Starts a program with the agent, without changing its code (`stilltrue run`), and prepares each of its processes.

``run`` puts a ``sitecustomize`` on ``PYTHONPATH`` and becomes the program. Python imports it in the program and in every child
that inherits the environment; it calls :func:`prepare`, then runs the ``sitecustomize`` that it hides. The agent is loaded when
the process makes its first channel or server, or makes or serves its first HTTP request, so helpers are not members. The
program itself also joins when it starts its first thread, event loop or child process.
"""

from __future__ import annotations

import importlib
import logging
import os
import re
import shutil
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from stilltrue.http.instrumented_methods import join_when_used
from stilltrue.runtime.introspection.linux.child_processes import STARTED
from stilltrue.runtime.joining.concurrency import join_when_concurrent
from stilltrue.runtime.joining.deferral import attach_when_used
from stilltrue.runtime.joining.greenlets import would_be_held_up
from stilltrue.runtime.joining.started_program import SERVERS, WEB_SERVERS, module_of_application

if TYPE_CHECKING:
    from stilltrue.agent import Agent

_LOGGER = logging.getLogger("stilltrue")
SITE = str(Path(__file__).with_name("site"))
"""The directory of our ``sitecustomize``."""
_WORKERS = ("from multiprocessing.spawn import", "from multiprocessing.forkserver import")
GRPCIO_OLDEST = (1, 62, 3)
NOT_FOUND, NOT_EXECUTABLE = 127, 126


def run(command: Sequence[str], settings: Mapping[str, str]) -> int:
    """Become ``command``, with ``settings`` (``STILLTRUE_...``) in its environment. Returns an exit code if that fails."""
    environment = dict(os.environ)
    add_site(environment)
    environment.update(settings)
    environment[STARTED] = str(os.getpid())
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvpe(command[0], list(command), environment)
    except OSError as error:
        script = command[0].endswith(".py") and Path(command[0]).exists()
        hint = f" (to run a script: python {command[0]})" if script else ""
        found = os.sep in command[0] or shutil.which(command[0]) is not None  # else a folder of PATH that we may not read
        if found and not isinstance(error, FileNotFoundError):
            sys.stderr.write(f"stilltrue run: {command[0]}: {error.strerror}{hint}\n")
            return NOT_EXECUTABLE
        sys.stderr.write(f"stilltrue run: no such command: {command[0]}{hint}\n")
        return NOT_FOUND


def add_site(environment: MutableMapping[str, str]) -> None:
    """Put our ``sitecustomize`` before any other on ``PYTHONPATH``, once."""
    paths = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path and path != SITE]
    environment["PYTHONPATH"] = os.pathsep.join((SITE, *paths))


def copy_package(folder: Path) -> Path:
    """Copy the agent into ``folder``, for programs in other environments. Returns the path to put on ``PYTHONPATH``."""
    import shutil  # noqa: PLC0415 - not in a stranger's process

    package = folder / "stilltrue"
    shutil.copytree(Path(__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    return package / "site"


def prepare() -> None:
    """Make this process join at its first channel, server or HTTP request. Idempotent; called by ``sitecustomize``."""
    if is_opentelemetry_launcher(sys.orig_argv):
        sys.addaudithook(_stay_first)
    if not is_helper(sys.orig_argv, os.environ):
        attach_when_used(_attach)
        join_when_used(_attach)
        if is_the_program(sys.orig_argv, os.environ):
            join_when_concurrent(_attach_and_connect)


def is_opentelemetry_launcher(arguments: Sequence[str]) -> bool:
    """Whether this process is ``opentelemetry-instrument``, which becomes the program that it is given."""
    script = next((one for one in arguments[1:] if not one.startswith("-")), "")
    return Path(script).stem == "opentelemetry-instrument"


def _stay_first(event: str, _: tuple[object, ...]) -> None:
    """Stay before OpenTelemetry's ``sitecustomize``, whose directory its launcher has put first.

    It does not run the next one, and it makes the channels of its exporters before anything else of the program runs.
    """
    if event == "os.exec":
        add_site(os.environ)


def prepare_beside_opentelemetry() -> None:
    """As :func:`prepare`, for a program started by `stilltrue run` whose ``sitecustomize`` is OpenTelemetry's all the same.

    OpenTelemetry's calls this entry point, after its exporters have made their channels.
    """
    if os.environ.get(STARTED):
        prepare()


def is_helper(arguments: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether this process runs code from ``-c`` that was not passed to ``run``: a tool, or one of Python's own helpers.

    Workers of multiprocessing are started by ``-c``, too, but are not helpers.
    """
    code = _code_of(arguments)
    return code is not None and not code.startswith(_WORKERS) and environment.get(STARTED) != str(os.getpid())


def is_the_program(arguments: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether this is the process that `stilltrue run` became.

    Not a server of web applications: its first process often only starts and watches others, which join by their requests.
    """
    return environment.get(STARTED) == str(os.getpid()) and not WEB_SERVERS & {Path(one).stem for one in arguments[1:4]}


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
    """The default service name of a program started with ``arguments`` (``sys.argv``).

    The name of the script without its extension, of the package, or of the module of an application that a server runs.
    """
    path = Path(main_file or (arguments[0] if arguments else ""))
    stem = path.parent.name if path.stem in {"__main__", "__init__"} else path.stem
    if stem == "manage":  # Django: every project has a manage.py, so take the project's name
        stem = os.environ.get("DJANGO_SETTINGS_MODULE", stem).partition(".")[0]
    if stem in SERVERS:
        return module_of_application(arguments[1:]) or stem
    return stem if stem not in {"", "-c", "-m"} else "python"


def module_to_run(arguments: Sequence[str], original: Sequence[str]) -> str | None:
    """What ``python -m`` is about to run, without the names of its packages; None for anything else, or once it runs.

    ``arguments``: ``sys.argv``, which does not name the module yet while ``sitecustomize`` is imported; ``original``:
    ``sys.orig_argv``.
    """
    if list(arguments[:1]) != ["-m"]:
        return None
    for one, after in pairwise((*original[1:], "")):
        if found := re.fullmatch(r"-[A-Za-z]*?m(.*)", one):
            return (found[1] or after).rpartition(".")[2]
    return None


def program_of_parent() -> str | None:
    """The default service name of a worker of multiprocessing that has yet to learn which program it belongs to (Linux).

    It is its parent's. OpenTelemetry's ``sitecustomize`` makes channels that early; None for any other process.
    """
    if sys.argv[:1] != ["-c"] or not (_code_of(sys.orig_argv) or "").startswith(_WORKERS):
        return None
    try:
        parent = Path(f"/proc/{os.getppid()}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return None
    for index, one in enumerate(parent[1:-1], 1):
        if re.fullmatch(r"-[A-Za-z]*c", one):
            return None
        if re.fullmatch(r"-[A-Za-z]*m", one):
            return program_name(parent[index:], parent[index + 1].rpartition(".")[2])
        if not one.startswith("-") and parent[index - 1] not in ("-W", "-X"):
            return program_name(parent[index:])
    return None


def _check_runtime() -> None:
    """Import gRPC, and raise ``RuntimeError`` if the program's environment has a version that the agent does not support."""
    importlib.import_module("grpc")
    text = str(getattr(sys.modules.get("grpc"), "__version__", "0"))
    if tuple(map(int, re.findall(r"\d+", text)[:3])) < GRPCIO_OLDEST:
        raise RuntimeError(f"grpcio {text} is older than {'.'.join(map(str, GRPCIO_OLDEST))}")


def _attach_and_connect() -> None:
    """Make this process join at once, not only with its first channel, server or request."""
    agent = _attach()
    if agent is not None:
        agent.start()


def _attach() -> Agent | None:
    """Make this process join. If anything fails, the program goes on without the agent, and this returns None."""
    if would_be_held_up():
        return None
    try:
        _check_runtime()
        from stilltrue.instrumentation import instrument  # noqa: PLC0415 - loads gRPC and protobuf, which few processes need

        service = os.environ.get("STILLTRUE_SERVICE") or os.environ.get("OTEL_SERVICE_NAME")
        main_file = getattr(sys.modules.get("__main__"), "__file__", None) or module_to_run(sys.argv, sys.orig_argv)
        return instrument(service or program_of_parent() or program_name(sys.argv, main_file))
    except Exception as error:  # noqa: BLE001 - fail open
        _LOGGER.warning("not joined: %s: %s; this process is not watched", type(error).__name__, error)
        return None
