"""The compose file of docs/examples and the Dockerfile: valid, with flags, files and addresses that exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest

import stilltrue
from detector.cli import cli
from tests.helm.conftest import ROOT, needed

FOLDER = ROOT / "docs" / "examples" / "compose"
Documents = Callable[[str], list[Any]]


@pytest.fixture
def services(documents: Documents) -> dict[str, Any]:
    (compose,) = documents((FOLDER / "compose.yaml").read_text())
    return dict(compose["services"])


def test_the_detectors_flags_exist(services: dict[str, Any]) -> None:
    name, *flags = services["detector"]["command"]
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    known = {flag for parameter in command.params for flag in parameter.opts}
    assert {flag.partition("=")[0] for flag in flags} <= known
    assert {"--host=0.0.0.0", "--allow-plaintext", "--http-host=0.0.0.0"} <= set(flags), "or nobody outside reaches it"


def test_the_file_is_valid_by_the_schema_of_compose(documents: Documents, jsonschema: ModuleType) -> None:
    file = ROOT / "build" / "tools" / "compose-spec.json"
    needed(file.exists(), "the schema of compose files")
    schema = json.loads(file.read_text())
    (compose,) = documents((FOLDER / "compose.yaml").read_text())
    jsonschema.validate(compose, schema)
    compose["services"]["detector"]["comand"] = []
    with pytest.raises(jsonschema.ValidationError, match="comand"):
        jsonschema.validate(compose, schema)


def test_hadolint_finds_nothing_in_the_dockerfile(tmp_path: Path) -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    needed(hadolint.exists(), "hadolint")
    dockerfile = (ROOT / "Dockerfile").read_text()
    for text, code in ((dockerfile, 0), (dockerfile.replace("WORKDIR /src", "WORKDIR src"), 1)):
        (tmp_path / "Dockerfile").write_text(text)
        command = [str(hadolint), "--no-color", str(tmp_path / "Dockerfile")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stdout


def test_every_file_that_is_mounted_exists(services: dict[str, Any]) -> None:
    mounted = [volume.split(":")[0] for each in services.values() for volume in each.get("volumes", ())]
    missing = [path for path in mounted if path.startswith(".") and not (FOLDER / path).exists()]
    assert missing == []
    assert (FOLDER / services["detector"]["build"] / "Dockerfile").exists()


def test_the_services_are_the_example_and_dial_the_detector(services: dict[str, Any]) -> None:
    for name in ("orders", "stock"):
        service = services[name]
        assert (service["command"], service["environment"]["STILLTRUE_SERVICE"]) == ([name], name)
        assert service["environment"]["STILLTRUE_DETECTOR"] == "detector:7600"
        assert service["image"] == services["detector"]["image"] == f"stilltrue:{stilltrue.__version__}"


def test_ports_are_published_on_loopback_only(services: dict[str, Any]) -> None:
    published = [port for each in services.values() for port in each.get("ports", ())]
    assert len(published) == 5
    assert [port for port in published if not port.startswith("127.0.0.1:")] == []


def test_prometheus_accepts_its_configuration(promtool: str, tmp_path: Path) -> None:
    rules = FOLDER.parents[2] / "helm" / "stilltrue" / "files" / "stilltrue.rules.yaml"
    shutil.copy(rules, tmp_path / rules.name)
    shutil.copy(FOLDER / "prometheus.yaml", tmp_path / "prometheus.yml")
    check = [promtool, "check", "config", str(tmp_path / "prometheus.yml")]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"SUCCESS: \d\d rules found", done.stdout)
