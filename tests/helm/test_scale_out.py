"""Scale-out in the chart: the additional objects, and how the parts find each other."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.helm.test_chart import flags_of

CHART = Path(__file__).resolve().parents[2] / "helm" / "stilltrue"
Objects = list[dict[str, Any]]
Rendered = Callable[..., Objects]
Helm = Callable[..., "subprocess.CompletedProcess[str]"]
PLAIN = ("scaleOut.enabled=true", "scaleOut.kafka.servers=kafka:9092")


@pytest.fixture
def plain(helm: Helm, documents: Callable[[str], list[Any]]) -> Callable[..., Objects]:
    """With the least that has to be said, and more."""

    def objects(*more: str) -> Objects:
        sets = [word for value in (*PLAIN, *more) for word in ("--set", value)]
        done = helm("template", "watch", str(CHART), "--namespace", "observability", "--kube-version", "1.29.0", *sets)
        assert done.returncode == 0, done.stderr
        return documents(done.stdout)

    return objects


def container(objects: Objects, kind: str, name: str) -> dict[str, Any]:
    (found,) = [each for each in objects if each["kind"] == kind and each["metadata"]["name"] == name]
    (only,) = found["spec"]["template"]["spec"]["containers"]
    return dict(only)


def arguments(of: dict[str, Any]) -> dict[str, str]:
    return dict(word.partition("=")[::2] for word in of["args"][1:])


@pytest.mark.parametrize("name", ["scale-out", "plain"])
def test_the_flags_of_every_program_exist_and_addresses_match(name: str, rendered: Rendered, plain: Rendered) -> None:
    objects = rendered(name) if name != "plain" else plain()
    coordinator = container(objects, "StatefulSet", "watch-stilltrue")
    collector = container(objects, "Deployment", "watch-stilltrue-collectors")
    assembly = container(objects, "Deployment", "watch-stilltrue-assembly")
    for each in (coordinator, collector, assembly):
        command, *_ = each["args"]
        assert arguments(each).keys() <= flags_of(command).keys()
    kafka = {arguments(each)["--kafka"] for each in (coordinator, collector, assembly)}
    assert len(kafka) == 1
    assert arguments(collector)["--fleet"] == arguments(coordinator)["--fleet"]
    assert arguments(collector)["--coordinator"] == "watch-stilltrue.observability.svc.cluster.local:7600"
    for each in (coordinator, collector, assembly):
        mounted = [mount["mountPath"] for mount in each["volumeMounts"]]
        assert ("/kafka" in mounted) is ("--kafka-config" in arguments(each))


def test_agents_connect_to_the_collectors_and_questions_go_to_the_coordinator(plain: Rendered) -> None:
    objects = plain("probe.databases[0].name=orders", "probe.databases[0].dsnSecret.name=dsn")
    probe = container(objects, "Deployment", "watch-stilltrue-probe-orders")
    environment = {each["name"]: each.get("value") for each in probe["env"]}
    assert environment["STILLTRUE_DETECTOR"] == "watch-stilltrue-collectors.observability.svc.cluster.local:7600"
    (test,) = [each for each in objects if each["kind"] == "Pod"]
    assert "watch-stilltrue.observability.svc.cluster.local:7600" in json.dumps(test)


def test_the_coordinator_may_reach_kafka_and_names(rendered: Rendered) -> None:
    policies = {each["metadata"]["name"]: each for each in rendered("scale-out") if each["kind"] == "NetworkPolicy"}
    policy = policies["watch-stilltrue"]
    ports = [(port["port"], port["protocol"]) for port in policy["spec"]["egress"][-1]["ports"]]
    assert ports == [(53, "UDP"), (53, "TCP"), (9092, "TCP")]


def test_an_object_store_in_kafkas_place_is_reached_by_https(plain: Rendered) -> None:
    objects = plain("scaleOut.kafka.servers=s3://bucket/records", "scaleOut.collectors.extraEnv[0].name=AWS_REGION")
    policies = {each["metadata"]["name"]: each for each in objects if each["kind"] == "NetworkPolicy"}
    ports = [port["port"] for rule in policies["watch-stilltrue"]["spec"]["egress"] for port in rule["ports"]]
    assert ports == [53, 53, 443]
    assert container(objects, "Deployment", "watch-stilltrue-collectors")["env"] == [{"name": "AWS_REGION"}]


def test_prometheus_scrapes_both_under_the_job_names_of_the_alerts(rendered: Rendered) -> None:
    objects = rendered("scale-out")
    monitors = {each["metadata"]["name"]: each["spec"] for each in objects if each["kind"] == "PodMonitor"}
    jobs = {spec["podMetricsEndpoints"][0]["relabelings"][0]["replacement"] for spec in monitors.values()}
    assert jobs == {"watch-stilltrue-collectors", "watch-stilltrue-assembly"}
    for kind, name in (("Deployment", "watch-stilltrue-collectors"), ("Deployment", "watch-stilltrue-assembly")):
        (port,) = [each for each in container(objects, kind, name)["ports"] if each["name"] == "metrics"]
        assert arguments(container(objects, kind, name))["--metrics"] == f"0.0.0.0:{port['containerPort']}"
    (rule,) = [each for each in objects if each["kind"] == "PrometheusRule"]
    alerts = {each["alert"]: each for group in rule["spec"]["groups"] for each in group["rules"]}
    named = set(re.findall(r'job="(watch-stilltrue-[a-z]+)"', json.dumps(alerts).replace("\\", "")))
    assert named == jobs
    assert alerts["StilltrueAssemblyBehind"]["labels"]["severity"] == "info"
    assert {"StilltrueDeadlock", "StilltrueReportsUnkept"} <= alerts.keys()


def test_the_limits_of_a_report_are_those_of_the_detectors_settings(plain: Rendered) -> None:
    """With the smaller defaults they would refuse what the settings allow. Their own arguments have the last word."""
    limits = ("detector.settings.reportBytesMax=33554432", "detector.settings.reportEntriesMax=100000")
    objects = plain(*limits)
    collector, assembly = (container(objects, "Deployment", f"watch-stilltrue-{each}") for each in ("collectors", "assembly"))
    assert arguments(collector)["--report-bytes-max"] == arguments(assembly)["--report-bytes-max"] == "33554432"
    assert arguments(collector)["--report-entries-max"] == "100000"
    assert "--report-entries-max" not in arguments(assembly), "which has no such option"
    own = plain(*limits, "scaleOut.collectors.extraArgs[0]=--report-entries-max=7")
    given = container(own, "Deployment", "watch-stilltrue-collectors")["args"]
    assert given[-1] == "--report-entries-max=7", "of two, the last one counts"
    assert "--report-" not in json.dumps(plain())


def test_without_scale_out_none_of_its_objects_exist(rendered: Rendered) -> None:
    assert not [each for each in rendered("monitoring") if "StilltrueAssembly" in json.dumps(each)]
    assert not [each for each in rendered("default") if each["metadata"]["name"].endswith(("-collectors", "-assembly"))]


@pytest.mark.parametrize(
    ("values", "named"),
    [
        (["scaleOut.enabled=true"], "scaleOut.kafka.servers"),
        ([*PLAIN, "detector.enabled=false", "sidecar.detector=d:1"], "detector.enabled"),
        ([*PLAIN, "tls.enabled=true", "tls.existingSecret=a", "tls.clientAuth=true"], "scaleOut.collectors.tlsSecret"),
        ([*PLAIN, "scaleOut.kafka.servers=kafka"], "servers"),
        ([*PLAIN, "scaleOut.assembly.partitions=0"], "partitions"),
    ],
)
def test_impossible_values_are_refused_by_key(values: list[str], named: str, helm: Helm) -> None:
    sets = [word for value in values for word in ("--set", value)]
    done = helm("template", "watch", str(CHART), "--kube-version", "1.29.0", *sets)
    assert done.returncode != 0
    assert named in done.stderr
