"""Installed packages that are the application's own: in a container, a program is often installed like its libraries."""

from __future__ import annotations

import functools
import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stilltrue.runtime import compat, own_packages
from stilltrue.runtime.introspection.code_cache import forget_all
from stilltrue.runtime.introspection.origins import is_of_own_module, is_own_code

JOBS = """
class Servicer:
    def Get(self, request, context):
        return request

    @classmethod
    def Put(cls, request, context):
        return request


def serve(request, context):
    return request


def make():
    from stilltrue import Agent

    Agent("shop", enabled=False).close()
"""
WHAT_IS_OWN = """
import json, sys
from stilltrue.runtime.own_packages import is_installed_library
print(json.dumps([is_installed_library(f"{SITE}/{name}/jobs.py") for name in ("shop", "library")]))
"""


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(own_packages, "_known", {})
    forget_all()
    yield
    forget_all()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages, on the path: ``shop_jobs`` and ``library_jobs``."""
    folder = tmp_path / "lib" / "site-packages"
    for name in ("shop_jobs", "library_jobs"):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(JOBS)
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    for name in ("shop_jobs", "library_jobs"):
        sys.modules.pop(name, None)


def is_known_as_own(module: Any) -> bool:
    of_application = any(name == module.__name__ for name, _ in compat.modules_of_application())
    seen = {is_own_code(module.serve.__code__), is_of_own_module(module.Servicer), of_application}
    assert len(seen) == 1, "three answers to one question"
    return seen.pop()


HANDLERS: dict[str, Callable[[Any], Any]] = {
    "a function": lambda module: module.serve,
    "a method": lambda module: module.Servicer().Get,
    "a method of a class": lambda module: module.Servicer.Put,
    "a partial": lambda module: functools.partial(module.serve),
}


@pytest.mark.parametrize("handler", HANDLERS.values(), ids=HANDLERS)
def test_a_package_with_the_handlers_of_a_server_is_the_programs_own(site: Path, handler: Callable[[Any], Any]) -> None:
    shop, library = map(importlib.import_module, ("shop_jobs", "library_jobs"))
    assert not is_known_as_own(shop)
    own_packages.add_handler(handler(shop))
    assert is_known_as_own(shop)
    assert not is_known_as_own(library)


def test_the_package_that_makes_the_agent_is_the_programs_own(site: Path) -> None:
    shop, library = map(importlib.import_module, ("shop_jobs", "library_jobs"))
    shop.make()
    assert is_known_as_own(shop)
    assert not is_known_as_own(library)


def test_an_interceptors_or_tools_package_is_not(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_packages, "_RUNNERS", frozenset({"shop_jobs"}))
    shop = importlib.import_module("shop_jobs")
    own_packages.add_handler(shop.serve)
    assert not is_known_as_own(shop)


def own_of(site: Path, command: list[str], *, more: dict[str, str] | None = None) -> dict[str, bool]:
    """Whether ``shop`` and ``library`` are the program's own in a process started by ``command``."""
    path = ":".join([str(site), *(one for one in sys.path if one)])
    environment = {"PYTHONPATH": path, **(more or {})}
    ended = subprocess.run([sys.executable, *command], check=False, env=environment, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    libraries = json.loads(ended.stdout.splitlines()[-1])
    return dict(zip(("shop", "library"), (not one for one in libraries), strict=True))


def note(package: Path, **more: str) -> None:
    """Write the notes that an installer leaves about ``package``."""
    notes = package.with_name(f"{package.name}-1.0.dist-info")
    notes.mkdir()
    files = [f"../../../bin/{package.name}", f"{package.name}/__init__.py", f"{package.name}/cli.py", f"{notes.name}/RECORD"]
    for name, text in {"RECORD": "".join(f"{file},sha256=x,1\n" for file in files), **more}.items():
        (notes / name).write_text(text)


@pytest.fixture(params=["lib/site-packages", "vendored"])
def installed(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A folder of installed packages whose ``main()`` prints what is the program's own. ``vendored``: with ``--target``."""
    folder = tmp_path / str(request.param)
    for name in ("shop", "library", "uvicorn"):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text("")
        body = WHAT_IS_OWN.replace("{SITE}", str(folder)).replace("\n", "\n    ")
        (folder / name / "cli.py").write_text(f"def main():\n    pass{body}\n\nif __name__ == '__main__':\n    main()\n")
        if folder.name == "vendored" and (name != "shop" or "repository" not in request.node.name):
            note(folder / name)
    return folder


ONLY_SHOP = {"shop": True, "library": False}
NONE = {"shop": False, "library": False}


def test_python_m(installed: Path) -> None:
    assert own_of(installed, ["-m", "shop.cli"]) == ONLY_SHOP


@pytest.mark.parametrize(("module", "own"), [("shop", ONLY_SHOP), ("uvicorn", NONE)])
def test_a_console_script(installed: Path, tmp_path: Path, module: str, own: dict[str, bool]) -> None:
    script = tmp_path / "shop-server"
    script.write_text(f"import sys\nfrom {module}.cli import main\nif __name__ == '__main__':\n    sys.exit(main())\n")
    assert own_of(installed, [str(script)]) == own


@pytest.mark.parametrize(
    "arguments",
    [["shop.app:app"], ["--workers", "2", "shop.app:create()"], ["--app", "shop"], ["-A", "shop.tasks"], ["shop.tasks"]],
)
def test_an_application_that_a_server_runs(installed: Path, arguments: list[str]) -> None:
    assert own_of(installed, ["-m", "uvicorn.cli", *arguments]) == ONLY_SHOP


@pytest.mark.parametrize("name", ["DJANGO_SETTINGS_MODULE", "FLASK_APP"])
def test_an_application_named_in_the_environment(installed: Path, name: str) -> None:
    assert own_of(installed, ["-m", "uvicorn.cli"], more={name: "shop.settings"}) == ONLY_SHOP


@pytest.mark.parametrize(
    ("source", "installer", "own"),
    [
        ({"url": "file:///src/shop", "dir_info": {}}, "pip", ONLY_SHOP),
        ({"url": "https://git.example/shop", "vcs_info": {"vcs": "git"}}, "uv", ONLY_SHOP),
        ({"url": "file:///home/conda/feedstock_root/build/work", "dir_info": {}}, "conda", NONE),
        ({"url": "file:///wheels/shop-1.whl", "archive_info": {}}, "pip", NONE),  # as all libraries in such an image
        ("not an object", "pip", NONE),
    ],
)
def test_a_package_installed_from_a_folder_or_a_repository(
    installed: Path, source: object, installer: str, own: dict[str, bool]
) -> None:
    """Also if it is not what was started: one of several packages of a program."""
    note(installed / "shop", **{"direct_url.json": json.dumps(source), "INSTALLER": f"{installer}\n"})
    assert own_of(installed, ["-m", "uvicorn.cli"]) == own


@pytest.mark.longer
@pytest.mark.parametrize("name", ["test_wakers.py", "test_closers.py", "test_ways_out_by_functions.py"])
@pytest.mark.not_in_ci
def test_ways_out_are_found_in_an_installed_program(tmp_path: Path, name: str) -> None:
    """Run tests of ways out as if they had been installed."""
    tests = Path(__file__).parents[2]
    folder = tmp_path / "lib" / "site-packages"
    shutil.copytree(tests, folder / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(tests.parent / "pyproject.toml", folder)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"tests/client/look/ways_out/{name}"]
    environment = {**os.environ, "FLASK_APP": "tests"}
    ended = subprocess.run(command, check=False, cwd=folder, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout[-3_000:]
