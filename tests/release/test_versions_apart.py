"""Agents and detectors one version apart work together; a newer detector reads an older one's state and archive.

There is no released wheel yet: the version before is built from an earlier commit, which a shallow clone lacks.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pyarrow.parquet as pq
import pytest

from detector.archive.files import ArchiveFiles
from detector.archive.journal import Journal
from detector.archive.writer import ArchiveWriter
from tests.free_ports import free_port

pytestmark = [pytest.mark.longer, pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.xdist_group("versions")]
ROOT = Path(__file__).parents[2]
EARLIER = "0fd73adcd2d8a4db8809643728a0fae35d8f0c90"
NEW = f"{ROOT}{os.pathsep}{ROOT / 'clients' / 'python'}"
SERVE = ("-m", "detector.cli", "serve", "--port", "0", "--http-port", "0", "--data")
ASKS_MAX = 60


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where the earlier version is installed, by its wheels."""
    known = ["git", "cat-file", "-e", f"{EARLIER}^{{commit}}"]
    if subprocess.run(known, cwd=ROOT, check=False, capture_output=True).returncode:
        pytest.skip(f"no commit {EARLIER[:7]} here: a shallow clone, or no clone at all")
    folder = tmp_path_factory.mktemp("earlier")
    tree, wheels, site = folder / "tree", folder / "wheels", folder / "site"
    tree.mkdir()
    archive = subprocess.run(["git", "archive", EARLIER], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "x", "-C", str(tree)], input=archive, check=True)
    uv, python = str(Path(sys.executable).with_name("uv")), ["--python", sys.executable]
    for package in (tree / "clients" / "python", tree):
        subprocess.run([uv, "build", "-q", "--wheel", *python, "-o", str(wheels), str(package)], check=True, timeout=200)
    built = map(str, wheels.glob("*.whl"))
    subprocess.run([uv, "pip", "install", "-q", "--no-deps", *python, "--target", str(site), *built], check=True, timeout=200)
    return str(site)


@contextlib.contextmanager
def running(
    folder: Path, path: str, *arguments: str, stderr: int = subprocess.DEVNULL, **values: str
) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, *arguments], env={**os.environ, "PYTHONPATH": path, **values}, cwd=folder,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True,
    )  # fmt: skip
    with process:
        try:
            yield process
        finally:
            process.kill()


def deadlock(folder: Path, detector: str, agents: tuple[str, str], data: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The verdict of ``detector`` on a deadlock of two processes with ``agents``, and all incidents, the newest first."""
    with contextlib.ExitStack() as stack:
        served = stack.enter_context(running(folder, detector, *SERVE, str(data)))
        assert served.stdout is not None
        address = served.stdout.readline().split("grpc=")[1].split()[0]
        ports = [str(free_port()) for _ in range(2)]
        program = str(Path(__file__).with_name("version_apart.py"))
        started = [
            stack.enter_context(running(folder, path, program, name, own, other, STILLTRUE_DETECTOR=address))
            for name, path, own, other in zip("ab", agents, ports, reversed(ports), strict=True)
        ]
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == "started\n"
        channels = [stack.enter_context(grpc.insecure_channel(f"127.0.0.1:{port}")) for port in ports]
        methods: list[Any] = [channel.unary_unary("/shop.Shop/Place") for channel in channels]
        calls = [method.future(b"") for method in methods]
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == "serving\n"
        for process in started:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()

        def told(*command: str) -> Any:
            call = [sys.executable, "-m", "detector.cli", *command, "--json", "--detector", address]
            environment = {**os.environ, "PYTHONPATH": detector}
            return json.loads(subprocess.run(call, env=environment, cwd=folder, capture_output=True, check=False).stdout)

        verdict = next(found for _ in range(ASKS_MAX) if (found := told("ask", "deadlock"))["holds"])
        assert not any(call.done() for call in calls)
        incidents = told("incidents")
        served.terminate()
        served.wait(timeout=100)
        return verdict, incidents


@pytest.mark.parametrize(
    ("detector", "agents"),
    [
        ("new", "old new"),
        *(
            pytest.param(*apart, marks=pytest.mark.not_in_ci)
            for apart in (("new", "old old"), ("old", "new new"), ("old", "old new"), ("old", "old old"), ("new", "new new"))
        ),
    ],
)
def test_agents_and_detectors_one_version_apart_report_a_deadlock(detector: str, agents: str, old: str, tmp_path: Path) -> None:
    paths = {"old": old, "new": NEW}
    first, second = (paths[each] for each in agents.split())
    verdict, incidents = deadlock(tmp_path, paths[detector], (first, second), tmp_path / "data")
    assert {party.split("/")[0] for party in verdict["core"]} == {"a", "b"}
    assert incidents[0]["closed"] is None


def test_a_newer_detector_continues_from_an_older_ones_state_and_archive(old: str, tmp_path: Path) -> None:
    """And the older one takes the state back, or refuses it in one line."""
    data = tmp_path / "data"
    before, known = deadlock(tmp_path, old, (old, old), data)
    after, incidents = deadlock(tmp_path, NEW, (NEW, NEW), data)
    assert after["snapshot"]["id"] > before["snapshot"]["id"]
    assert {each["id"] for each in known} < {each["id"] for each in incidents}
    assert {before["snapshot"]["id"], after["snapshot"]["id"]} <= archived(data)
    with running(tmp_path, old, *SERVE, str(data), stderr=subprocess.PIPE) as back:
        assert back.stdout is not None
        assert back.stderr is not None
        taken = back.stdout.readline().startswith("listening")
        assert taken or len(back.stderr.read().splitlines()) == 1


def archived(data: Path) -> set[int]:
    """The snapshots in the archive, as this version reads them."""
    files, found = ArchiveFiles(str(data / "archive")), set[int]()
    ArchiveWriter(files, journal=Journal(data), seconds_max=1e9).recover()
    for file in files.scan("snapshots").files:
        with files.filesystem.open_input_file(file.path) as opened:
            found.update(pq.read_table(opened, columns=["snapshot"]).column("snapshot").to_pylist())
    return found
