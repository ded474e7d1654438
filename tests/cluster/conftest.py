"""An API server with its store and controllers, on loopback, and Helm. It has no nodes: pods are made, but do not run."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.free_ports import free_port
from tests.helm.conftest import module

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "build" / "cluster"
SERVICES = "127.96.0.0/16"
"""Addresses of Services: on loopback, so that a process of the tests can stand behind one."""
READY_SECONDS_MAX = 120.0
_TOKEN = "of-the-tests"


class Api:
    """Requests to the API server, as an administrator or with another token."""

    def __init__(self, port: int, token: str = _TOKEN) -> None:
        self.address = f"https://127.0.0.1:{port}"
        self._token = token
        self._trusting = ssl.create_default_context()
        self._trusting.check_hostname, self._trusting.verify_mode = False, ssl.CERT_NONE
        self._open = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=self._trusting)
        ).open

    def ask(self, method: str, path: str, body: Any = None, *, kind: str = "application/json") -> tuple[int, Any]:
        """The status and the object (or text) of the answer, whatever the status."""
        request = urllib.request.Request(f"{self.address}{path}", method=method)
        request.add_header("Authorization", f"Bearer {self._token}")
        request.add_header("Content-Type", kind)
        data = None if body is None else json.dumps(body).encode()
        try:
            with self._open(request, data, timeout=60) as answer:
                status, text = answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            status, text = refused.code, refused.read().decode()
        return status, json.loads(text) if text.startswith("{") else text

    def get(self, path: str) -> Any:
        """The object at ``path``."""
        status, answer = self.ask("GET", path)
        assert status == 200, answer
        return answer

    def create(self, path: str, body: Any) -> Any:
        """Create ``body`` in the collection at ``path``; the object as the API server made it."""
        status, answer = self.ask("POST", path, body)
        assert status in (200, 201), answer
        return answer

    def namespace(self, name: str) -> str:
        """A namespace in which only pods of the restricted standard are let in."""
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        self.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        until(lambda: self.ask("GET", f"/api/v1/namespaces/{name}/serviceaccounts/default")[0] == 200)
        return name

    def path_of(self, an_object: dict[str, Any], namespace: str) -> str:
        """Where the collection of an object's kind is."""
        version, kind = an_object["apiVersion"], an_object["kind"]
        base = f"/api/{version}" if "/" not in version else f"/apis/{version}"
        (resource,) = [each for each in self.get(base)["resources"] if each["kind"] == kind and "/" not in each["name"]]
        where = an_object["metadata"].get("namespace", namespace)
        return f"{base}/namespaces/{where}/{resource['name']}" if resource["namespaced"] else f"{base}/{resource['name']}"


def until(holds: Callable[[], Any]) -> Any:
    """What ``holds`` returns, once it is true."""
    end = time.monotonic() + READY_SECONDS_MAX
    while not (found := holds()):
        assert time.monotonic() < end, f"not within {READY_SECONDS_MAX:g} s"
        time.sleep(0.2)
    return found


def documents(text: str) -> list[Any]:
    """The documents of a YAML text that are not empty."""
    yaml = module("yaml")
    return [each for each in yaml.load_all(text, yaml.CSafeLoader) if each]


@pytest.fixture(scope="session")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """The API server, once it is ready, with the custom resources that the chart can make."""
    folder = tmp_path_factory.mktemp("cluster")
    port, store, peer = (free_port() for _ in range(3))
    subprocess.run(["openssl", "genrsa", "-out", "sa.key", "2048"], cwd=folder, check=True, capture_output=True)
    (folder / "tokens.csv").write_text(f'{_TOKEN},admin,admin,"system:masters"\n')
    (folder / "kubeconfig").write_text(_kubeconfig(port))
    with ExitStack() as programs:
        for name, *arguments in _commands(port, f"http://127.0.0.1:{store}", f"http://127.0.0.1:{peer}"):
            log = programs.enter_context((folder / f"{name}.log").open("w"))
            command = [str(PROGRAMS / name), *arguments]
            process = programs.enter_context(subprocess.Popen(command, cwd=folder, stdout=log, stderr=log))
            programs.callback(process.terminate)
        made = Api(port)
        until(lambda: _answers(made))
        for file in sorted((ROOT / "build" / "tools" / "crds").glob("*.yaml")):
            for crd in documents(file.read_text()):
                made.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
                until(partial(_established, made, crd["metadata"]["name"]))
        os.environ["KUBECONFIG"] = str(folder / "kubeconfig")
        yield made


def _commands(port: int, store: str, peer: str) -> Iterator[list[str]]:
    yield [
        "etcd", "--data-dir=store", "--unsafe-no-fsync", f"--listen-client-urls={store}", f"--advertise-client-urls={store}",
        f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}",
    ]  # fmt: skip
    yield [
        "kube-apiserver", f"--etcd-servers={store}", "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1",
        "--endpoint-reconciler-type=none", f"--secure-port={port}", "--cert-dir=certificates",
        f"--service-cluster-ip-range={SERVICES}", "--service-account-issuer=https://kubernetes.default.svc",
        "--service-account-key-file=sa.key", "--service-account-signing-key-file=sa.key", "--token-auth-file=tokens.csv",
        "--authorization-mode=RBAC",
    ]  # fmt: skip
    yield [
        "kube-controller-manager", "--kubeconfig=kubeconfig", "--leader-elect=false", "--secure-port=0",
        "--service-account-private-key-file=sa.key", "--use-service-account-credentials=false",
    ]  # fmt: skip


def _kubeconfig(port: int) -> str:
    cluster = {"server": f"https://127.0.0.1:{port}", "insecure-skip-tls-verify": True}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "tests", "cluster": cluster}],
        "users": [{"name": "admin", "user": {"token": _TOKEN}}],
        "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "admin"}}],
        "current-context": "tests",
    }
    return json.dumps(config)


def _answers(api: Api) -> bool:
    try:
        return api.ask("GET", "/readyz")[0] == 200
    except OSError:
        return False


def _established(api: Api, name: str) -> bool:
    crd = api.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}")
    conditions = crd.get("status", {}).get("conditions") or ()
    return any((each["type"], each["status"]) == ("Established", "True") for each in conditions)


@pytest.fixture(scope="session")
def helm(api: Api) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs Helm against the API server; never raises."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(ROOT / "build" / "tools" / "helm"), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=200)

    return run
