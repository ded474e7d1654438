"""The chart's SparkApplication is submitted through the image's entry point, and its pods share storage and credentials."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

Documents = Callable[[str], list[Any]]
Helm = Callable[..., "subprocess.CompletedProcess[str]"]

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "stilltrue"
ENTRY = ROOT / "helm" / "image" / "spark"
FLEET = ("--processes", "5", "--days", "0.01", "--incidents", "0", "--near-misses", "0", "--jobs", "1")
IN_IMAGE = "local:///app/lib/python3.11/site-packages/stilltrue_detector/"
EXECUTOR = {"SPARK_EXECUTOR_MEMORY": "1g", "SPARK_DRIVER_URL": "spark://driver:7078", "SPARK_EXECUTOR_ID": "3",
               "SPARK_EXECUTOR_CORES": "1", "SPARK_APPLICATION_ID": "spark-1", "SPARK_EXECUTOR_POD_IP": "10.0.0.9",
               "SPARK_RESOURCE_PROFILE_ID": "0", "SPARK_EXECUTOR_POD_NAME": "exec-3", "SPARK_JAVA_OPT_0": "-Da=1 2",
               "SPARK_JAVA_OPT_1": "-Db=2"}  # fmt: skip


@pytest.mark.longer
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.not_in_ci
def test_the_rendered_application_runs_in_local_mode(rendered: Callable[..., list[dict[str, Any]]], tmp_path: Path) -> None:
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java 17")
    (application,) = [each for each in rendered("tuned") if each["kind"] == "ScheduledSparkApplication"]
    template = application["spec"]["template"]
    program = ROOT / "detector" / template["mainApplicationFile"].removeprefix(IN_IMAGE)
    assert program.exists(), "the path in the image is that of a file of the package"
    _, *options = template["arguments"]
    archive = tmp_path / "archive"
    made = [sys.executable, "-m", "detector", "generate-archive", str(archive), *FLEET]
    subprocess.run(made, check=True, capture_output=True)
    arguments = [option.replace("/results", str(tmp_path / "results")) for option in options]
    submit = [str(ENTRY), "driver", "--master", "local[2]", str(program), str(archive), *arguments, "--engine", "spark"]
    own = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": own, "SPARK_DRIVER_BIND_ADDRESS": "127.0.0.1", "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(submit, env=env, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads((tmp_path / "results" / "summary.json").read_text())["snapshots"] > 5


def test_driver_and_executors_write_to_the_same_place_with_the_same_credentials(helm: Helm, documents: Documents) -> None:
    def rendered_with(output: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        spark = f"archiveUrl=s3://b/archive,{output},existingSecret=bucket,extraEnv[0].name=AWS_REGION,extraEnv[0].value=eu"
        values = ",".join(f"pipeline.sparkapplication.{each}" for each in spark.split(","))
        done = helm(
            "template", "watch", str(CHART), "--kube-version", "1.29.0", "--set", f"pipeline.mode=sparkapplication,{values}"
        )
        assert done.returncode == 0, done.stderr
        (application,) = [each for each in documents(done.stdout) if each["kind"] == "ScheduledSparkApplication"]
        template = application["spec"]["template"]
        return template, [template["driver"], template["executor"]]

    template, pods = rendered_with("outputClaim=analysis")
    assert "--out=/results" in template["arguments"]
    for pod in pods:
        assert [mount["mountPath"] for mount in pod["volumeMounts"]] == ["/results"]
        assert pod["podSecurityContext"]["fsGroup"] == 65532, "a new volume belongs to root"
        assert pod["envFrom"] == [{"secretRef": {"name": "bucket"}}]
        assert pod["env"] == [{"name": "AWS_REGION", "value": "eu"}]
        assert pod["serviceAccount"] == "spark"
    template, pods = rendered_with("outputUrl=s3://b/analysis")
    assert "--out=s3://b/analysis" in template["arguments"]
    assert "volumes" not in template
    assert not any("volumeMounts" in pod for pod in pods)


def test_an_executor_is_started_with_what_spark_sets(tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    java.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SPARK_HOME": "/spark", "PYSPARK_PYTHON": "python", **EXECUTOR}
    done = subprocess.run([str(ENTRY), "executor"], env=env, capture_output=True, text=True, check=True)
    told = done.stdout.splitlines()
    assert told[:4] == ["-Da=1 2", "-Db=2", "-Xms1g", "-Xmx1g"]
    assert "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend" in told
    assert dict(pairwise(told))["--podName"] == "exec-3"


def test_any_other_argument_is_a_stilltrue_command(tmp_path: Path) -> None:
    command = tmp_path / "stilltrue"
    command.write_text('#!/bin/sh\necho "$@"\n')
    command.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run([str(ENTRY), "analyze", "/data/archive"], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "analyze /data/archive\n"
