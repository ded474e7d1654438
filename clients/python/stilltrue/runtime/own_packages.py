"""The installed packages that are the application's own: a program is often installed itself, for example in a container.

An installed package counts as the application's if it

- makes the agent, or has the handlers of a recorded server,
- is the program that was started (``python -m shop``, a console script), or has the application that a server runs
  (``uvicorn shop.app:app``; ``DJANGO_SETTINGS_MODULE``, ``FLASK_APP``) or another program runs (``dramatiq shop.tasks``),
- was installed from a folder or a repository instead of an index (PEP 610, ``direct_url.json``).

All other installed packages are libraries. A package is installed if it is in ``site-packages`` or ``dist-packages``, or beside
its ``dist-info`` in another folder of the path (``pip install --target``, pex).
"""

from __future__ import annotations

import functools
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import Any

from stilltrue.runtime.introspection.code_cache import forget_all
from stilltrue.runtime.introspection.frames import frames_of_this_thread
from stilltrue.runtime.joining.started_program import SERVERS, module_of_application

_INSTALLED = re.compile(r"(.*[/\\])?(?:site|dist)-packages[/\\][^/\\]+")
"""The path of an installed package's folder, or of a module that has no folder."""
_IMPORT = re.compile(r"^from ([\w.]+) import", re.M)
_NAMED = re.compile(r"([A-Za-z_]\w*)(?:\.\w+)+(?::.*)?")
"""An argument that names something in a package: ``dramatiq shop.tasks``, ``arq shop.worker.Settings``."""
_SCRIPT_BYTES_MAX = 1_000
_OURS = str(Path(__file__).parents[1]) + os.sep
_LAUNCHER = "stilltrue.launch"
_RUNNERS = SERVERS | {
    *("pytest", "_pytest", "coverage", "debugpy", "pydevd", "IPython", "ipykernel", "django", "watchfiles", "hupper", "honcho"),
    *("airflow", "arq", "dagster", "dramatiq", "faust", "huey", "nameko", "prefect", "ray", "rq", "streamlit", "taskiq"),
    *("opentelemetry", "ddtrace", "newrelic", "elasticapm", "sentry_sdk", "grpc_interceptor", "py_grpc_prometheus"),
}
"""Packages that run programs, or wrap handlers: no application is in them."""
_MAIN = "__main__"
_program: dict[str, str] = {}
"""The file of the main module, which Python forgets once the program has run to its end."""
_known: dict[str, bool] = {}
"""By the path of an installed package: whether it is the application's."""


def is_installed_library(file: str) -> bool:
    """Whether a file belongs to an installed package that is not the application's own."""
    package = package_of(file)
    return package is not None and not is_own(package)


@functools.lru_cache(maxsize=10_000)
def package_of(file: str) -> str | None:
    """The path of the installed package that a file belongs to; None if it is not installed."""
    if "-packages" in file and (found := _INSTALLED.match(file)) is not None:
        return found[0]
    for folder in sys.path:
        if isinstance(folder, str) and folder and file.startswith(start := os.path.join(folder, "")):  # noqa: PTH118 - as text, of each file of a program
            name = file[len(start) :].partition(os.sep)[0]
            if name in _installed_in(folder):
                return start + name
    return None


def name_of(file: str) -> str:
    """The name of the installed package that a file belongs to; empty if it is not installed."""
    package = package_of(file)
    return "" if package is None else os.path.basename(package)  # noqa: PTH119 - of each code object of a stack


@functools.cache
def _installed_in(folder: str) -> frozenset[str]:
    """The names of the packages and modules that were installed into a folder other than ``site-packages``."""
    return frozenset(name for record in Path(folder).glob("*.dist-info/RECORD") for name in _installed_by(record))


def is_own(package: str) -> bool:
    """Whether an installed package, given by :func:`package_of`, is the application's own."""
    known = _known.get(package)
    if known is None:
        path = Path(package)
        name = path.stem
        known = name not in _RUNNERS and (name in _started() or name in _local_packages(str(path.parent)))
        _known[package] = known
    return known


def add(module: object) -> None:
    """Add the package of a module, given by its name, as the application's own, if it is an installed one."""
    file = file_of(module) if isinstance(module, str) else None
    package = None if file is None else package_of(file)
    if package is not None and not _known.get(package) and Path(package).stem not in _RUNNERS:
        _known[package] = True
        forget_all()


def add_maker() -> None:
    """Add the package whose code makes the agent. In a program started by ``stilltrue run`` no package does."""
    file_of(_MAIN)
    for frame in frames_of_this_thread():
        name = frame.f_globals.get("__name__")
        if not frame.f_code.co_filename.startswith(_OURS):
            add(name)
            return
        if name == _LAUNCHER:
            return


def add_handler(behaviour: Any) -> None:
    """Add the package of a handler of a recorded server."""
    if type(behaviour) is functools.partial:
        behaviour = behaviour.func
    if type(behaviour) is MethodType:
        owner = behaviour.__self__
        add(type.__getattribute__(owner if issubclass(type(owner), type) else type(owner), "__module__"))
    elif type(behaviour) is FunctionType:
        add(behaviour.__module__)  # that of the wrapped function, where a library's decorator keeps it


def file_of(module: str) -> str | None:
    """The file of an imported module; None if it has none."""
    one = sys.modules.get(module)
    found = ModuleType.__getattribute__(one, "__dict__").get("__file__") if type(one) is ModuleType else None
    if module == _MAIN and isinstance(found, str):
        _program[module] = found
    return found if isinstance(found, str) else _program.get(module)


@functools.lru_cache(maxsize=1_000)
def is_library_to_load(module: str) -> bool:
    """Whether a module that is not loaded yet would come from an installed package that is not the application's own."""
    name = module.partition(".")[0]
    for folder in sys.path:
        places = (os.path.join(folder or ".", one) for one in (name, f"{name}.py"))  # noqa: PTH118 - as text, for package_of
        place = next((one for one in places if os.path.exists(one)), None)  # noqa: PTH110
        if place is not None:
            return is_installed_library(place)
    return False


@functools.lru_cache(maxsize=1)
def _started() -> frozenset[str]:
    """The names of the packages that have the program that was started."""
    modules = [*_main_modules(), os.environ.get("DJANGO_SETTINGS_MODULE", ""), os.environ.get("FLASK_APP", "")]
    return frozenset(one.partition(":")[0].partition(".")[0] for one in modules if one)


def _main_modules() -> Iterator[str]:
    file = file_of(_MAIN)
    if file is None:
        return
    package = package_of(file)
    if package is not None:
        yield Path(package).stem
    elif not Path(file).suffix:  # a console script, as installers write it
        yield from _imports_of(file)
    yield module_of_application(sys.argv[1:]) or ""
    yield from (named[1] for one in sys.argv[1:] if (named := _NAMED.fullmatch(one)) is not None)


def _imports_of(script: str) -> list[str]:
    try:
        with Path(script).open(encoding="utf-8", errors="replace") as text:
            return _IMPORT.findall(text.read(_SCRIPT_BYTES_MAX))
    except OSError:
        return []


@functools.cache
def _local_packages(folder: str) -> frozenset[str]:
    """The packages in a ``site-packages`` that were installed from a folder or a repository, by name."""
    found: set[str] = set()
    for record in Path(folder).glob("*.dist-info/direct_url.json"):
        try:
            source = json.loads(record.read_text(encoding="utf-8"))
            installer = record.with_name("INSTALLER")
            by_conda = installer.exists() and installer.read_text(encoding="utf-8").strip() == "conda"
            if by_conda or not ("dir_info" in source or "vcs_info" in source):  # conda notes the folder of its own builds
                continue
        except (OSError, ValueError, TypeError):
            continue
        found.update(Path(name).stem for name in _installed_by(record.with_name("RECORD")))
    return frozenset(found)


def _installed_by(record: Path) -> set[str]:
    """The names of the folders and modules that one distribution has brought, from the list of its files."""
    try:
        files = [line.split(",")[0] for line in record.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError):
        return set()
    return {one.split("/")[0] for one in files if one.endswith((".py", ".so", ".pyd")) and not one.startswith((".", "/"))}
