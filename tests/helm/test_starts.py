"""The detector starts with the chart's arguments and environment (but on loopback and any port)."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

OURS = {
    "--host=0.0.0.0": "--host=127.0.0.1", "--port=7600": "--port=0",
    "--http-host=0.0.0.0": "--http-host=127.0.0.1", "--http-port=7601": "--http-port=0",
}  # fmt: skip


@pytest.mark.parametrize("name", ["default", "ephemeral", "tuned"])
def test_the_detector_starts_with_the_charts_command(
    name: str, rendered: Callable[..., list[dict[str, Any]]], tmp_path: Path
) -> None:
    objects = rendered(name)
    (detector,) = next(each for each in objects if each["kind"] == "StatefulSet")["spec"]["template"]["spec"]["containers"]
    told = next(each for each in objects if each["kind"] == "ConfigMap" and "STILLTRUE_SERVE_LOG_FORMAT" in each["data"])[
        "data"
    ]
    arguments = [OURS.get(each, each.replace("=/data", f"={tmp_path}")) for each in detector["args"]]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("STILLTRUE_")} | told
    environment |= {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1"}
    command = [sys.executable, "-m", "detector.cli", *arguments]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        assert line.startswith("listening "), process.stderr.read()
        address = line.split("metrics=")[1].split()[0]
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(address, timeout=10) as metrics:
            text = metrics.read().decode()
        process.terminate()
        assert process.wait(15) == 0
    assert 'stilltrue_predicate_state{predicate="deadlock",scope="all",state="true"} 0.0' in text
    assert ('scope="shop"' in text) == (name == "tuned")
