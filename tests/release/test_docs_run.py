"""The documented commands run unchanged: those on documents, and the quick start's."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from detector.core.verdict import write_verdict
from detector.release.publish import ROOT
from stilltrue import Detector
from tests.commands.conftest import environment
from tests.free_ports import free_port
from tests.release.test_docs import PAGES, fenced

PATIENCE_SECONDS = 120.0
BIN = Path(sys.executable).parent
DOCUMENT = {
    "processes": {"a": {"activity": "idle", "facts": {"lease": 3}, "labels": {"team": "payments"}}},
    "waits": [{"waiter": "a/T1", "among": ["a/T2"]}, {"waiter": "a/T2", "among": ["a/T1"]}],
}
MISSPELT = '{"waits": [\n{"waiter": "a", "among": ["b"]},\n{"waiter": "b", "among": ["a"], "neds": 1}]}\n'
ON_A_PAGE = Path(__file__).with_name("on_a_page.py")
pytestmark = [pytest.mark.slow, pytest.mark.live]


def called() -> Iterator[tuple[str, list[str]]]:
    """Each command in the transcripts of docs/predicates.md, with what it is shown to print."""
    for code in fenced(ROOT / "docs" / "predicates.md", "console"):
        for block in re.split(r"^\$ ", code, flags=re.MULTILINE)[1:]:
            command, *printed = block.splitlines()
            yield command, printed


@pytest.mark.parametrize(("command", "printed"), list(called()))
def test_a_command_prints_what_its_page_shows(command: str, printed: list[str], tmp_path: Path) -> None:
    misspelt = any("neds" in line for line in printed)
    (tmp_path / "snapshot.json").write_text(MISSPELT if misspelt else json.dumps(DOCUMENT))
    (tmp_path / "snapshots.jsonl").write_text(f"{json.dumps(DOCUMENT)}\n" * 2)
    done = subprocess.run(command, shell=True, env=paths(), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert [line for line in printed if line not in (done.stdout + done.stderr).splitlines()] == []
    assert done.returncode in ({2} if printed else {0, 1, 3}), done.stderr


def test_the_readmes_graph_document_is_a_deadlock(tmp_path: Path) -> None:
    (code,) = (code for code in fenced(ROOT / "README.md", "sh") if "graph.json" in code)
    done = subprocess.run(code, shell=True, env=paths(), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "deadlock: TRUE"), done.stderr


def test_the_quick_start_ends_with_a_deadlock(tmp_path: Path) -> None:
    page = ROOT / "docs" / "quickstart.md"
    (code,) = (code for code in fenced(page, "sh") if code.startswith("stilltrue serve"))
    serve, *programs, ask = code.splitlines()
    addresses = {f"{name}_ADDRESS": f"127.0.0.1:{free_port()}" for name in ("ORDERS", "STOCK")}
    ports = {"STILLTRUE_SERVE_PORT": "0", "STILLTRUE_SERVE_HTTP_PORT": "0", "STILLTRUE_SERVE_DATA": str(tmp_path)}
    env = paths(**addresses, **ports)
    with ExitStack() as stack:
        detector = stack.enter_context(running(serve, env))
        assert detector.stdout is not None
        address = re.search(rb"grpc=(\S+)", detector.stdout.readline())
        assert address
        env["STILLTRUE_DETECTOR"] = address[1].decode()
        for program in programs:
            stack.enter_context(running(program, env))
        give_up = time.monotonic() + PATIENCE_SECONDS
        with Detector(env["STILLTRUE_DETECTOR"]) as asked:
            while len((verdict := write_verdict(asked.ask("deadlock")))["core"]) < 4:
                assert time.monotonic() < give_up, verdict
        done = subprocess.run(ask, shell=True, env=env, cwd=ROOT, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout.splitlines()[0]) == (0, "deadlock: TRUE"), done.stderr


RUN_BY_OTHER_TESTS = ("docs/checkpoints.md", "docs/pipeline.md")
"""By test_checkpoints_doc.py, and by test_data_source.py and streaming/test_pipeline.py of tests/spark, which need Java."""


@pytest.mark.longer
def test_the_python_of_every_page_runs(tmp_path: Path) -> None:
    """With the names that the text around it has introduced, a detector, and an archive in the directory that it names."""
    fleet = ["--processes=5", "--days=0.01", "--incidents=0", "--near-misses=0", "--jobs=1"]
    for command in (["generate-archive", "archive", *fleet], ["analyze", "archive", "--out=analysis"]):
        subprocess.run([sys.executable, "-m", "detector", *command], cwd=tmp_path, env=paths(), check=True, capture_output=True)
    (tmp_path / "analysis" / "verdicts").rename(tmp_path / "archive" / "verdicts")  # the same table as a detector's
    (tmp_path / "stilltrue-data").mkdir()
    (tmp_path / "stilltrue-data" / "archive").symlink_to(tmp_path / "archive")  # where a detector keeps it
    ports = paths(STILLTRUE_SERVE_PORT="0", STILLTRUE_SERVE_HTTP_PORT="0", STILLTRUE_SERVE_DATA=str(tmp_path / "data"))
    pages = [page for page in PAGES if str(page.relative_to(ROOT)) not in RUN_BY_OTHER_TESTS]
    found = [(page, code.replace(", ...]", "]")) for page in pages for code in fenced(page, "python")]
    assert len(found) >= 13
    with running("stilltrue serve", ports) as detector:
        assert detector.stdout is not None
        address = re.search(rb"grpc=(\S+)", detector.stdout.readline())
        assert address
        env = paths(STILLTRUE_DETECTOR=address[1].decode(), PYTHONPATH=str(ROOT))
        for page, code in found:
            snippet = [sys.executable, str(ON_A_PAGE)]
            done = subprocess.run(snippet, input=code, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{page.name}: {code}\n{done.stderr}"


def paths(**values: str) -> dict[str, str]:
    """An environment in which ``stilltrue`` and ``python`` are those that run the tests."""
    return environment(PATH=f"{BIN}{os.pathsep}{os.environ['PATH']}", **values)


@contextmanager
def running(command: str, env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, shell=True, env=env, cwd=ROOT, stdout=subprocess.PIPE, start_new_session=True)
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
