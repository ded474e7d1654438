"""The tools that the tests of the chart and the alerts need; without them those tests are skipped, and fail where CI is set."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "stilltrue"


def needed(what: object, name: str) -> Any:
    """``what``, or no test: a failure in CI, elsewhere a skip that says how to get it."""
    if what:
        return what
    reason = f"{name} is not here: run helm/tools/install"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def module(name: str) -> ModuleType:
    """A module that helm/tools/install brings."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return needed(None, name)  # type: ignore[no-any-return]


@pytest.fixture(scope="session")
def documents() -> Callable[[str], list[Any]]:
    """Reads YAML, all documents of a text that are not empty (with libyaml: the schemas are long)."""
    yaml = module("yaml")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return lambda text: [each for each in yaml.load_all(text, loader) if each]


@pytest.fixture(scope="session")
def promtool() -> str:
    return str(needed(shutil.which("promtool"), "promtool"))


@pytest.fixture(scope="session")
def helm() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs Helm; never raises."""
    binary = ROOT / "build" / "tools" / "helm"
    needed(binary.exists(), "helm")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([str(binary), *arguments], capture_output=True, text=True, check=False, cwd=ROOT)

    return run


@pytest.fixture(scope="session")
def rendered(
    helm: Callable[..., subprocess.CompletedProcess[str]], documents: Callable[[str], list[Any]]
) -> Callable[..., list[dict[str, Any]]]:
    """The objects that the chart makes: of a ci values file by its name, or of ``--set`` values."""
    known: dict[tuple[str, ...], list[dict[str, Any]]] = {}

    def objects(name: str, *more: str, kubernetes: str = "1.29.0") -> list[dict[str, Any]]:
        at = (name, kubernetes, *more)
        if at not in known:
            values = CHART / "ci" / f"{name}-values.yaml"
            where = ("--namespace", "observability", "--kube-version", kubernetes)
            done = helm("template", "watch", str(CHART), *where, "-f", str(values), *more)
            assert done.returncode == 0, done.stderr
            known[at] = documents(done.stdout)
        return known[at]

    return objects


@pytest.fixture(scope="session")
def golden(documents: Callable[[str], list[Any]]) -> Callable[[str], list[dict[str, Any]]]:
    """The objects of the committed render of a ci values file."""
    folder = Path(__file__).parent / "golden"
    return cache(lambda name: documents((folder / f"{name}.yaml").read_text()))


@pytest.fixture(scope="session")
def remake() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs helm/tools/remake.py."""
    module("yaml")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        script = ROOT / "helm" / "tools" / "remake.py"
        return subprocess.run([sys.executable, str(script), *arguments], capture_output=True, text=True, check=False, cwd=ROOT)

    return run


@pytest.fixture(scope="session")
def kubernetes_validate() -> ModuleType:
    return module("kubernetes_validate")


@pytest.fixture(scope="session")
def jsonschema() -> ModuleType:
    return module("jsonschema")


@pytest.fixture(scope="session")
def crds(documents: Callable[[str], list[Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    """The schemas of others' resources by (apiVersion, kind)."""
    files = sorted((ROOT / "build" / "tools" / "crds").glob("*.yaml"))
    needed(files, "the schemas of custom resources")
    found = {}
    for crd in (crd for file in files for crd in documents(file.read_text())):
        for version in crd["spec"]["versions"]:
            at = f"{crd['spec']['group']}/{version['name']}", crd["spec"]["names"]["kind"]
            found[at] = version["schema"]["openAPIV3Schema"]
    return found
