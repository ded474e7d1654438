"""The output of ``make release``: complete, reproducible, and usable in an empty environment."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import Distribution, PathDistribution
from pathlib import Path

import pytest

import stilltrue
from detector.release.bill_of_materials import refused_licences
from detector.release.build_backend import absolute_links, renamed
from detector.release.publish import ROOT, publish, unpack

pytestmark = [pytest.mark.slow, pytest.mark.longer, pytest.mark.xdist_group("release")]
PROGRAM = Path(__file__).with_name("program.py")
WANTED = {
    f"stilltrue-{stilltrue.__version__}-py3-none-any.whl",
    f"stilltrue-{stilltrue.__version__}.tar.gz",
    f"stilltrue_detector-{stilltrue.__version__}-py3-none-any.whl",
    f"stilltrue_detector-{stilltrue.__version__}.tar.gz",
    f"stilltrue-image-{stilltrue.__version__}.tar.gz",
    f"stilltrue-chart-{stilltrue.__version__}.tgz",
    f"stilltrue-{stilltrue.__version__}.cdx.json",
    f"stilltrue-detector-{stilltrue.__version__}.cdx.json",
}


def test_every_artefact_exists_with_its_checksum(published: Path) -> None:
    lines = (published / "SHA256SUMS").read_text().splitlines()
    sums = {name: digest for digest, name in (line.split("  ") for line in lines)}
    assert set(sums) >= WANTED
    assert {path.name for path in published.iterdir()} == {*sums, "SHA256SUMS"}
    assert sums == {name: hashlib.sha256((published / name).read_bytes()).hexdigest() for name in sums}


@pytest.mark.not_in_ci
def test_a_second_run_makes_the_same_bytes(published: Path, tmp_path: Path) -> None:
    publish(tmp_path / "dist")
    assert (tmp_path / "dist" / "SHA256SUMS").read_text() == (published / "SHA256SUMS").read_text()


def test_a_folder_with_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "old.whl").touch()
    with pytest.raises(SystemExit, match="is not empty"):
        publish(tmp_path)


def test_a_python_without_filters_for_archives_can_unpack_the_commit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As Debian 12's 3.11.2: ``extractall(filter=...)`` came with 3.11.4."""
    new = tarfile.TarFile.extractall

    def old(self: tarfile.TarFile, path: Path, members: None = None, *, numeric_owner: bool = False) -> None:
        new(self, path, members, numeric_owner=numeric_owner)

    monkeypatch.setattr(tarfile.TarFile, "extractall", old)
    monkeypatch.delattr(tarfile, "data_filter", raising=False)
    (tmp_path / "one").write_text("1")
    with tarfile.open(tmp_path / "of.tar", "w") as made:
        made.add(tmp_path / "one", "one")
    with tarfile.open(tmp_path / "of.tar") as archive:
        unpack(archive, tmp_path / "there")
    assert (tmp_path / "there" / "one").read_text() == "1"


def test_the_image_context_has_what_the_dockerfile_copies(published: Path) -> None:
    with tarfile.open(published / f"stilltrue-image-{stilltrue.__version__}.tar.gz") as context:
        names = context.getnames()
        assert context.getmember("helm/image/install").mode & 0o100
    assert {
        "Dockerfile",
        ".dockerignore",
        "helm/image/requirements.txt",
        "detector/cli.py",
        "clients/python/pyproject.toml",
    } <= set(names)


def test_the_image_context_has_only_committed_files(published: Path) -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    with tarfile.open(published / f"stilltrue-image-{stilltrue.__version__}.tar.gz") as context:
        assert {member.name for member in context} - {*listed} == set()


def test_the_packed_chart_has_no_development_files(published: Path) -> None:
    with tarfile.open(published / f"stilltrue-chart-{stilltrue.__version__}.tgz") as chart:
        names = chart.getnames()
    assert {"stilltrue/Chart.yaml", "stilltrue/values.yaml", "stilltrue/values.schema.json"} <= set(names)
    assert not [name for name in names if "/ci/" in name]


def test_the_wheel_installs_one_top_level_name(published: Path) -> None:
    for wheel in published.glob("*.whl"):
        with zipfile.ZipFile(wheel) as files:
            first = {name.split("/")[0] for name in files.namelist()}
        assert {name for name in first if not name.endswith(".dist-info")} == {wheel.name.split("-")[0]}


def test_the_bill_of_materials_lists_the_wheels_dependencies(published: Path) -> None:
    materials = json.loads((published / f"stilltrue-detector-{stilltrue.__version__}.cdx.json").read_text())
    pinned = (ROOT / "constraints.txt").read_text()
    found = {component["name"]: component["version"] for component in materials["components"]}
    assert {"stilltrue", "stilltrue-detector", "grpcio", "protobuf", "prometheus_client", "networkx"} <= set(found)
    others = {name: version for name, version in found.items() if not name.startswith("stilltrue")}
    assert [name for name, version in others.items() if f"{name.replace('_', '-').lower()}=={version}" not in pinned] == []
    assert "pyspark" not in found


@pytest.mark.parametrize(
    ("licences", "refused"),
    [
        ([{"license": {"id": "MIT"}}], False),
        ([{"expression": "Apache-2.0 OR GPL-3.0-only"}], False),
        ([{"license": {"name": "License :: OSI Approved :: BSD License"}}], False),
        ([{"license": {"id": "AGPL-3.0-only"}}], True),
        ([], True),
    ],
)
def test_a_licence_that_is_not_accepted_is_refused(licences: list[dict[str, object]], refused: bool) -> None:
    component = {"name": "thing", "version": "1", "licenses": licences}
    assert bool(list(refused_licences({"components": [component]}))) is refused


def test_a_source_archive_builds_the_same_package(published: Path, tmp_path: Path) -> None:
    with tarfile.open(published / f"stilltrue_detector-{stilltrue.__version__}.tar.gz") as source:
        source.extractall(tmp_path, filter="data")
    assert next(tmp_path.glob("*/detector/release/build_backend.py"))
    assert next(tmp_path.glob("*/clients/python/stilltrue/VERSION"))


def test_the_installed_packages_have_author_and_links(installed: Path) -> None:
    for name in ("stilltrue", "stilltrue_detector"):
        about = _metadata(installed, name).metadata
        assert about["Author"] == "The Stilltrue authors"
        assert about["License-Expression"] == "Apache-2.0"
        assert {"Homepage", "Documentation", "Source", "Issues", "Changelog"} <= {
            line.split(",")[0] for line in about.get_all("Project-URL", [])
        }
        assert len(about.get_all("Classifier", [])) > 5
        text = about.get_payload()  # type: ignore[attr-defined]
        assert not re.findall(r"\]\((?!https?:|#)[^)]*\)", text), "links that do not work on a package index"


def test_the_installed_command_shows_a_users_deadlock(installed: Path, tmp_path: Path) -> None:
    """The three commands of the quick start, in an environment with nothing else."""
    command = str(installed / "bin" / "stilltrue")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("STILLTRUE_", "PYTHON", "VIRTUAL_ENV"))}
    env = {**kept, "STILLTRUE_SERVE_PERIOD_SECONDS": "0.2"}
    with _started([command, "serve", "--port=0", "--http-port=0"], env, tmp_path, pipe=True) as detector:
        line = next(line for line in iter(lambda: detector.stdout.readline().decode(), "") if "grpc=" in line)  # type: ignore[union-attr]
        found = re.search(r"grpc=(\S+)", line)
        assert found
        env["STILLTRUE_DETECTOR"] = found[1]
        program = [command, "run", "--service=bank", "--", str(installed / "bin" / "python"), str(PROGRAM)]
        with _started(program, env, tmp_path):
            watch = [command, "watch", "deadlock", "--json"]
            with _started(watch, env, tmp_path, pipe=True) as watching:
                said = (json.loads(line) for line in iter(watching.stdout.readline, b""))  # type: ignore[union-attr]
                verdict = next(verdict for verdict in said if verdict["holds"])
            asked = subprocess.run(
                [command, "ask", "deadlock"], env=env, cwd=tmp_path, capture_output=True, text=True, check=False
            )
    assert len(verdict["core"]) == 2, verdict
    assert (asked.returncode, asked.stderr) == (0, "")
    assert "/bank.Transfers/" in asked.stdout


def test_a_plain_installation_has_neither_spark_nor_test_tools(installed: Path) -> None:
    found = {path.name.split("-")[0].lower() for path in installed.glob("lib/python3*/site-packages/*.dist-info")}
    assert not found & {"pyspark", "pandas", "pyarrow", "pytest", "mypy", "ruff", "hypothesis"}


@pytest.mark.parametrize(
    ("code", "shipped"),
    [
        ("from detector.core.verdict import x", "from stilltrue_detector.core.verdict import x"),
        ("from detector import core", "from stilltrue_detector import core"),
        ('[sys.executable, "-m", "detector", "serve"]', '[sys.executable, "-m", "stilltrue_detector", "serve"]'),
        ('files("detector.core")', 'files("stilltrue_detector.core")'),
        ("detector.ask()", "detector.ask()"),
        ("self.detector.core", "self.detector.core"),
        ("values/detector.core", "values/detector.core"),
        ('start("detector", command)', 'start("detector", command)'),
    ],
)
def test_only_paths_of_modules_are_renamed(code: str, shipped: str) -> None:
    assert renamed(code, frozenset({"core"})) == shipped


def test_links_of_the_readme_work_outside_the_repository() -> None:
    assert absolute_links("[a](docs/a.md) [b](https://b) [c](#c) ![d](d.svg)") == (
        "[a](https://github.com/stilltrue/stilltrue/blob/main/docs/a.md) [b](https://b) [c](#c) "
        "![d](https://raw.githubusercontent.com/stilltrue/stilltrue/main/d.svg)"
    )


def _metadata(prefix: Path, name: str) -> Distribution:
    return PathDistribution(next(prefix.glob(f"lib/python3*/site-packages/{name}-*.dist-info")))


@contextmanager
def _started(command: list[str], env: dict[str, str], folder: Path, *, pipe: bool = False) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is told to end, and waited for."""
    process = subprocess.Popen(
        command, env=env, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE if pipe else subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=60)
