"""The chart in a real API server: every object is accepted, installed, upgraded and removed, and pods are injected."""

from __future__ import annotations

import base64
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.conftest import ROOT, Api, documents, until

pytestmark = pytest.mark.cluster
Helm = Callable[..., subprocess.CompletedProcess[str]]
CHART = ROOT / "helm" / "stilltrue"
CI = sorted(path.name.removesuffix("-values.yaml") for path in (CHART / "ci").glob("*-values.yaml"))
APPLY = "application/apply-patch+yaml"


def values(name: str) -> str:
    return str(CHART / "ci" / f"{name}-values.yaml")


@pytest.mark.parametrize("name", CI)
def test_every_object_is_applied_strictly_and_a_second_time_changes_nothing(name: str, api: Api, helm: Helm) -> None:
    space = api.namespace(f"apply-{name}")
    done = helm("template", "watch", str(CHART), "--namespace", space, "--kube-version", "1.34.0", "-f", values(name))
    assert done.returncode == 0, done.stderr
    made = documents(done.stdout)
    assert len(made) >= 4
    for each in made:
        where = each["metadata"].get("namespace", space)
        if where != space and api.ask("GET", f"/api/v1/namespaces/{where}")[0] == 404:
            api.namespace(where)
        at = f"{api.path_of(each, space)}/{each['metadata']['name']}"
        strictly = f"{at}?fieldManager=tests&fieldValidation=Strict"
        status, first = api.ask("PATCH", strictly, each, kind=APPLY)
        assert status in (200, 201), first
        status, again = api.ask("PATCH", strictly, each, kind=APPLY)
        assert status == 200, again
        assert owned(again) == owned(first)


def owned(an_object: dict[str, Any]) -> Any:
    """The fields that the tests' manager owns."""
    (entry,) = [each for each in an_object["metadata"]["managedFields"] if each["manager"] == "tests"]
    return entry["fieldsV1"]


def test_an_unknown_key_would_be_refused(api: Api) -> None:
    wrong = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "datas": {}}
    status, answer = api.ask("POST", "/api/v1/namespaces/default/configmaps?fieldValidation=Strict", wrong)
    assert (status, "datas" in answer["message"]) == (400, True)


@pytest.mark.parametrize("name", CI)
def test_helm_installs_upgrades_and_removes_it(name: str, api: Api, helm: Helm) -> None:
    space, release = api.namespace(f"install-{name}"), f"watch-{name}"
    if name == "tuned":  # its values name what an operator has made before
        if api.ask("GET", "/api/v1/namespaces/billing")[0] == 404:
            api.namespace("billing")
        api.create("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "high"}, "value": 1000})
        api.create(f"/api/v1/namespaces/{space}/serviceaccounts", {"metadata": {"name": "detector"}})
    where = ("--namespace", space)
    for command in (
        ("install", release, str(CHART), "-f", values(name)),
        ("upgrade", release, str(CHART), "--reset-then-reuse-values"),
        ("upgrade", release, str(CHART), "--reset-then-reuse-values", "--set", "detector.settings.periodSeconds=2"),
    ):
        done = helm(*command, *where)
        assert done.returncode == 0, done.stderr
        assert "Warning" not in done.stderr, done.stderr
    sets = api.get(f"/apis/apps/v1/namespaces/{space}/statefulsets")["items"]
    for each in sets:
        at = f"/api/v1/namespaces/{space}/pods/{each['metadata']['name']}-0"
        until(partial(_is_there, api, at))
    assert sets, "and the pods of each are let in by the restricted standard"
    claims = f"/api/v1/namespaces/{space}/persistentvolumeclaims"
    before = [each["metadata"]["name"] for each in api.get(claims)["items"]]
    assert bool(before) == (name not in ("ephemeral", "tuned")), "those two bring no claim of the chart's own"
    done = helm("uninstall", release, *where)
    assert done.returncode == 0, done.stderr
    left = [each["metadata"]["name"] for each in api.get(claims)["items"] if "deletionTimestamp" not in each["metadata"]]
    assert left == before, "the archive outlives the release"


def _is_there(api: Api, path: str) -> bool:
    return api.ask("GET", path)[0] == 200


@pytest.fixture
def injecting(api: Api, helm: Helm, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The webhook as the chart sets it up, with the certificate that the chart has signed.

    The API server calls the Service's address, which is on loopback here (``SERVICES``), on any of which the webhook listens.
    """
    space = api.namespace("injecting")
    done = helm(
        "install", "watch", str(CHART), "--namespace", space, "--set", "injector.enabled=true,certificate.selfSigned=true"
    )
    assert done.returncode == 0, done.stderr
    secret = api.get(f"/api/v1/namespaces/{space}/secrets/watch-stilltrue-injector-tls")["data"]
    told = api.get(f"/api/v1/namespaces/{space}/configmaps/watch-stilltrue-injector")["data"]
    for name, data in {**{each: base64.b64decode(text) for each, text in secret.items()}, **told}.items():
        (tmp_path / name).write_bytes(data if isinstance(data, bytes) else data.encode())
    files = {
        "--tls-cert-file": "tls.crt",
        "--tls-key-file": "tls.key",
        "--sidecar-file": "sidecar.json",
        "--agent-file": "agent.json",
    }
    command = [sys.executable, "-m", "detector.cli", "webhook", "--host=0.0.0.0", "--port=443"]
    command += [f"{flag}={tmp_path / file}" for flag, file in files.items()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        yield process
        process.terminate()
    helm("uninstall", "watch", "--namespace", space)


def asking(name: str, **annotations: str) -> dict[str, Any]:
    """A pod of the restricted standard, with a named port and the address of another service."""
    context = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container = {
        "name": "orders",
        "image": "orders:1",
        "securityContext": context,
        "ports": [{"name": "grpc", "containerPort": 8080}],
        "env": [{"name": "STOCK_ADDRESS", "value": "stock:50051"}],
    }
    security = {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}
    return {
        "metadata": {"name": name, "annotations": {f"stilltrue.dev/{key}": value for key, value in annotations.items()}},
        "spec": {"securityContext": security, "containers": [container]},
    }


SIDECAR = {
    "inject": "true",
    "port": "grpc",
    "upstream": "authority-routing",
    "outbound-env": "STOCK_ADDRESS",
    "service": "orders",
}


def test_pods_are_injected_and_start_without_injection_when_the_webhook_is_down(
    api: Api, injecting: subprocess.Popen[str]
) -> None:
    pods = f"/api/v1/namespaces/{api.namespace('shop-injected')}/pods"
    plain = api.create(pods, asking("plain"))
    assert "initContainers" not in plain["spec"]

    def known() -> bool:
        return "initContainers" in api.create(f"{pods}?dryRun=All", asking("trial", **SIDECAR))["spec"]

    until(known)  # the API server learns of a webhook a little later
    with_sidecar = api.create(pods, asking("with-sidecar", **SIDECAR))["spec"]
    (sidecar,) = with_sidecar["initContainers"]
    assert sidecar["restartPolicy"] == "Always"
    assert "grpc" in {port["name"] for port in sidecar["ports"]}
    (orders,) = with_sidecar["containers"]
    assert "grpc" not in {port.get("name") for port in orders["ports"]}
    assert orders["env"] == [{"name": "STOCK_ADDRESS", "value": "127.0.0.1:15001"}]

    with_agent = api.create(pods, asking("with-agent", **{"inject-python": "true", "service": "orders"}))["spec"]
    assert {"STILLTRUE_DETECTOR", "STILLTRUE_SERVICE", "PYTHONPATH"} <= {
        each["name"] for each in with_agent["containers"][0]["env"]
    }

    injecting.terminate()
    assert injecting.wait(30) == 0
    uninjected = api.create(pods, asking("uninjected", **SIDECAR))["spec"]
    assert "initContainers" not in uninjected
    assert uninjected["containers"][0]["env"] == [{"name": "STOCK_ADDRESS", "value": "stock:50051"}]
    assert uninjected["containers"][0]["ports"][0]["name"] == "grpc"


def test_the_detector_may_only_list_the_pods_it_expects(api: Api, helm: Helm) -> None:
    space, shop = api.namespace("expecting"), api.namespace("expected")
    done = helm(
        "install",
        "watch",
        str(CHART),
        "--namespace",
        space,
        "--set-json",
        f'detector.expect={{"all":["service:{shop}/orders"]}}',
    )
    assert done.returncode == 0, done.stderr
    user = f"system:serviceaccount:{space}:watch-stilltrue"
    for namespace, group, resource, verb, allowed in (
        (shop, "discovery.k8s.io", "endpointslices", "list", True),
        (shop, "discovery.k8s.io", "endpointslices", "delete", False),
        (shop, "", "secrets", "list", False),
        (space, "discovery.k8s.io", "endpointslices", "list", False),
    ):
        about = {"namespace": namespace, "group": group, "resource": resource, "verb": verb}
        review = {"spec": {"user": user, "resourceAttributes": about}}
        said = api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        assert said["status"]["allowed"] is allowed, about
