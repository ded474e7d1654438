"""The injecting webhook: what it adds to a pod, what it leaves alone, and that it never keeps a pod from starting."""

from __future__ import annotations

import base64
import copy
import http.client
import json
import re
import shutil
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from detector.commands.processes.webhook import Webhook
from detector.ops.address import Address, parse_address
from detector.ops.logs import LineFormatter, Log
from detector.sidecar.injection import answer
from detector.sidecar.routing import BY_AUTHORITY, Upstreams, upstream_of

SIDECAR = {"name": "stilltrue", "image": "stilltrue:1", "restartPolicy": "Always", "args": ["sidecar", "--admin-port=7602"]}
ASKED = {"inject": "true", "service": "orders", "inbound-port": "9090", "app-port": "8080"}


def pod(
    annotations: dict[str, str], *, spec: dict[str, Any] | None = None, labels: dict[str, str] | None = None
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "orders-",
            "annotations": {f"stilltrue.dev/{name}": value for name, value in annotations.items()},
            **({} if labels is None else {"labels": labels}),
        },
        "spec": {"containers": [{"name": "orders", "image": "orders:1"}], **(spec or {})},
    }


def asking(**more: str) -> dict[str, str]:
    return {**ASKED, **{name.replace("_", "-"): value for name, value in more.items()}}


def without(name: str) -> dict[str, str]:
    return {each: value for each, value in ASKED.items() if each != name}


AGENT = {"detector": "watch.observability:7600", "container": {"name": "stilltrue-agent", "image": "stilltrue:1"}}


def answered(
    a_pod: dict[str, Any], sidecar: dict[str, Any] | None = None, agent: dict[str, Any] | None = None
) -> dict[str, Any]:
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u-1", "object": a_pod}}
    made = answer(review, SIDECAR if sidecar is None else sidecar, AGENT if agent is None else agent)
    assert (made["apiVersion"], made["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert made["response"]["uid"] == "u-1"
    assert made["response"]["allowed"] is True
    return dict(made["response"])


def patched(
    a_pod: dict[str, Any], sidecar: dict[str, Any] | None = None, agent: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The pod after the patch, by the letter of RFC 6902 (`add` and `replace` are all that is used)."""
    response = answered(a_pod, sidecar, agent)
    assert response["patchType"] == "JSONPatch", response
    result = copy.deepcopy(a_pod)
    for operation in json.loads(base64.b64decode(response["patch"])):
        assert operation["op"] in {"add", "replace"}
        *way, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        target: Any = result
        for part in way:
            target = target[int(part)] if isinstance(target, list) else target[part]
        if operation["op"] == "replace":
            target[int(last)] = operation["value"]
        elif isinstance(target, list):
            target.insert(len(target) if last == "-" else int(last), operation["value"])
        else:
            target[last] = operation["value"]
    return result


def test_the_sidecar_is_injected_as_the_annotations_say() -> None:
    made = patched(pod(asking(upstream="stock=stock.shop:50051, authority-routing", workers="4", labels="team=shop")))
    (sidecar,) = made["spec"]["initContainers"]
    assert sidecar["args"] == [
        "sidecar", "--admin-port=7602", "--service=orders", "--inbound=0.0.0.0:9090", "--app=127.0.0.1:8080",
        "--outbound=127.0.0.1:15001", "--upstream=stock=stock.shop:50051", "--upstream=authority-routing", "--workers=4",
        "--label=team=shop",
    ]  # fmt: skip
    assert sidecar["ports"] == [{"name": "st-inbound", "containerPort": 9090}]
    assert made["metadata"]["labels"] == {"stilltrue.dev/sidecar": "true"}
    assert made["metadata"]["annotations"]["stilltrue.dev/status"] == "injected"
    assert made["spec"]["containers"] == pod({})["spec"]["containers"]


def test_the_sidecar_goes_before_other_init_containers_so_that_they_can_call_through_it() -> None:
    others = {"initContainers": [{"name": "migrate"}], "volumes": [{"name": "cache", "emptyDir": {}}]}
    made = patched(pod(asking(tls_secret="orders-tls"), spec=others, labels={"app": "orders"}))
    assert [each["name"] for each in made["spec"]["initContainers"]] == ["stilltrue", "migrate"]
    assert made["metadata"]["labels"] == {"app": "orders", "stilltrue.dev/sidecar": "true"}
    assert [each["name"] for each in made["spec"]["volumes"]] == ["cache", "stilltrue-tls"]
    assert "--tls-ca-file=/stilltrue-tls/ca.crt" in made["spec"]["initContainers"][0]["args"]


def test_the_service_is_named_by_the_pods_labels_by_default() -> None:
    labelled = pod(without("service"), labels={"app": "b", "app.kubernetes.io/name": "a"})
    assert "--service=a" in patched(labelled)["spec"]["initContainers"][0]["args"]


NAMED = {
    "inject": "true", "service": "orders", "port": "grpc", "upstream": "authority-routing", "outbound-env": "STOCK_ADDRESS",
}  # fmt: skip


def resolved(a_pod: dict[str, Any], name: str) -> list[int]:
    """What a Service's named targetPort resolves to in a pod, as Kubernetes does it."""
    everywhere = [*a_pod["spec"].get("initContainers", []), *a_pod["spec"]["containers"]]
    return [port["containerPort"] for each in everywhere for port in each.get("ports", []) if port.get("name") == name]


def program() -> dict[str, Any]:
    return {
        "name": "orders",
        "image": "orders:1",
        "ports": [{"name": "grpc", "containerPort": 8080}, {"name": "web", "containerPort": 8081}],
        "env": [{"name": "STOCK_ADDRESS", "value": "stock:50051"}, {"name": "OTHER", "value": "x"}],
        "readinessProbe": {"tcpSocket": {"port": "grpc"}},
        "livenessProbe": {"httpGet": {"port": "web", "path": "/"}},
    }


def test_a_named_port_moves_from_the_program_to_the_sidecar_so_that_a_pod_without_injection_serves() -> None:
    plain = pod(NAMED, spec={"containers": [program(), {"name": "log", "image": "log:1"}]})
    assert resolved(plain, "grpc") == [8080], "not injected, the Service reaches the program"
    made = patched(plain, {**SIDECAR, "startupProbe": {"tcpSocket": {"port": "st-inbound"}}})
    assert resolved(made, "grpc") == [15006], "injected, it reaches the sidecar"
    (sidecar,) = made["spec"]["initContainers"]
    assert "--inbound=0.0.0.0:15006" in sidecar["args"]
    assert "--app=127.0.0.1:8080" in sidecar["args"]
    assert sidecar["startupProbe"] == {"tcpSocket": {"port": "grpc"}}
    orders, log = made["spec"]["containers"]
    assert orders["readinessProbe"] == {"tcpSocket": {"port": 8080}}, "the probe goes on probing the program"
    assert orders["livenessProbe"] == program()["livenessProbe"]
    assert orders["env"] == [{"name": "STOCK_ADDRESS", "value": "127.0.0.1:15001"}, {"name": "OTHER", "value": "x"}]
    assert log == {"name": "log", "image": "log:1"}


def destination(annotations: dict[str, str], *addresses: dict[str, Any]) -> Address:
    """Where the injected sidecar sends a call of the program to the address that the patch has put into its variable."""
    (orders,) = [{**program(), "env": list(addresses)}] if addresses else [program()]
    made = patched(pod(annotations, spec={"containers": [orders]}))
    told = [each.removeprefix("--upstream=") for each in made["spec"]["initContainers"][0]["args"] if "--upstream=" in each]
    named = dict(upstream_of(each) for each in told if each != BY_AUTHORITY)
    upstreams = Upstreams(named=named, by_authority=BY_AUTHORITY in told)
    (dialled,) = {each["value"] for each in made["spec"]["containers"][0]["env"] if each["name"].endswith("_ADDRESS")}
    return upstreams.find(dialled, parse_address("127.0.0.1:15001"))


def test_a_call_to_the_address_in_a_redirected_variable_reaches_the_service_that_the_variable_named() -> None:
    assert str(destination(NAMED)) == "stock:50051"
    assert str(destination({**NAMED, "upstream": "bank=bank:50051"})) == "stock:50051"
    assert str(destination({**NAMED, "upstream": "authority-routing, other:1"})) == "other:1", "the annotations decide"
    target = {"name": "STOCK_ADDRESS", "value": "dns:///stock.shop:50051"}
    assert str(destination(NAMED, target)) == "stock.shop:50051"
    both = {**NAMED, "outbound-env": "STOCK_ADDRESS, BANK_ADDRESS"}
    bank = {"name": "BANK_ADDRESS", "value": "bank:50051"}
    assert str(destination({**both, "upstream": "stock:1"}, target, bank)) == "stock:1"
    from_field = {"name": "STOCK_ADDRESS", "valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}}
    for variables in ([target, bank], [from_field], [{**target, "value": "stock"}], [{**target, "value": "$(STOCK_HOST):1"}]):
        response = answered(pod(both, spec={"containers": [{**program(), "env": variables}]}))
        assert "patch" not in response
        assert "stilltrue.dev/outbound-env: the value of STOCK_ADDRESS, BANK_ADDRESS must be one" in response["warnings"][0]


@pytest.mark.parametrize(
    ("annotations", "named"),
    [
        ({**NAMED, "port": "http"}, "stilltrue.dev/port: 'http' is not a named port"),
        ({**NAMED, "app-port": "8080"}, "remove stilltrue.dev/app-port"),
        ({**NAMED, "inbound-port": "8080"}, "must differ from the program's port"),
        ({key: value for key, value in NAMED.items() if key != "upstream"}, "outbound-env needs stilltrue.dev/upstream"),
    ],
)
def test_a_wrong_named_port_is_a_warning_and_the_pod_starts_as_it_is(annotations: dict[str, str], named: str) -> None:
    response = answered(pod(annotations, spec={"containers": [program()]}))
    assert "patch" not in response
    assert named in response["warnings"][0]


@pytest.mark.parametrize("inject", ["false", None])
def test_a_pod_without_annotations_is_left_alone(inject: str | None) -> None:
    response = answered(pod({**without("inject"), **({} if inject is None else {"inject": inject})}))
    assert set(response) == {"uid", "allowed"}


@pytest.mark.parametrize("name", ["inject", "inject-python"])
@pytest.mark.parametrize("value", ["enabled", "True", ""])
def test_an_injection_asked_for_in_other_words_is_a_warning(name: str, value: str) -> None:
    response = answered(pod({**without("inject"), name: value}))
    assert "patch" not in response
    (warning,) = response["warnings"]
    assert warning.startswith(
        f"stilltrue: the {'sidecar' if name == 'inject' else 'agent'} was not injected: stilltrue.dev/{name} is"
    )
    assert f'"{value}", neither "true" nor "false"' in warning


def test_a_pod_that_has_the_sidecar_is_left_alone() -> None:
    once = patched(pod(asking()))
    assert "patch" not in answered(once)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"inbound_port": "http"}, "inbound-port"),
        ({"app_port": "0"}, "app-port"),
        ({"app_port": "65536"}, "app-port"),
        ({"workers": "-1"}, "workers"),
        ({"outbound_port": "9091"}, "upstream"),
        ({"inbound_prot": "1"}, "inbound-prot"),
        ({"service": ""}, "service"),
    ],
)
def test_a_wrong_annotation_is_a_warning_and_the_pod_starts_without(wrong: dict[str, str], named: str) -> None:
    response = answered(pod(asking(**wrong)))
    assert "patch" not in response
    (warning,) = response["warnings"]
    assert f"stilltrue.dev/{named}" in warning


@pytest.mark.parametrize("missing", ["inbound-port", "app-port"])
def test_a_missing_port_is_named(missing: str) -> None:
    (warning,) = answered(pod(without(missing)))["warnings"]
    assert f"stilltrue.dev/{missing} is required" in warning


def test_a_pod_with_the_injected_sidecar_is_valid_from_1_29_on(
    rendered: Callable[..., list[dict[str, Any]]], kubernetes_validate: ModuleType
) -> None:
    maps = [each["data"] for each in rendered("injector") if each["kind"] == "ConfigMap"]
    sidecar = next(json.loads(data["sidecar.json"]) for data in maps if "sidecar.json" in data)
    made = patched(pod(asking(upstream="authority-routing", tls_secret="orders-tls")), sidecar)
    (container,) = made["spec"]["initContainers"]
    assert container["restartPolicy"] == "Always"
    ports = {port["name"] for port in container["ports"]}
    assert container["startupProbe"]["tcpSocket"]["port"] in ports
    for version in ("1.29", "1.37"):
        kubernetes_validate.validate(made, version, strict=True)


# -- the Python agent --------------------------------------------------------------------------------------------------


def environment_of(container: dict[str, Any]) -> dict[str, Any]:
    return {variable["name"]: variable.get("value", variable.get("valueFrom")) for variable in container["env"]}


def test_the_agent_is_injected_on_a_volume_and_on_the_path_of_every_container() -> None:
    made = patched(pod({"inject-python": "true", "labels": "team=shop"}, labels={"app": "orders"}))
    assert made["spec"]["initContainers"] == [AGENT["container"]]
    assert made["spec"]["volumes"] == [{"name": "stilltrue-agent", "emptyDir": {}}]
    (program,) = made["spec"]["containers"]
    assert program["volumeMounts"] == [{"name": "stilltrue-agent", "mountPath": "/stilltrue-agent", "readOnly": True}]
    assert environment_of(program) == {
        "PYTHONPATH": "/stilltrue-agent/stilltrue/site",
        "STILLTRUE_DETECTOR": "watch.observability:7600",
        "STILLTRUE_SERVICE": "orders",
        "STILLTRUE_RUN_PID": "1",
        "STILLTRUE_LABELS": "team=shop",
        "POD_NAME": {"fieldRef": {"fieldPath": "metadata.name"}},
    }
    assert made["metadata"]["annotations"]["stilltrue.dev/status"] == "injected"


def test_the_pods_own_variables_stay() -> None:
    spec: dict[str, Any] = {
        "initContainers": [{"name": "migrate"}],
        "volumes": [{"name": "cache", "emptyDir": {}}],
        "containers": [
            {"name": "web", "env": [{"name": "PYTHONPATH", "value": "/app"}, {"name": "STILLTRUE_SERVICE", "value": "mine"}]},
            {"name": "nginx", "image": "nginx"},
        ],
    }
    asked = {"inject-python": "true", "service": "orders", "python-containers": "web", "tls-secret": "orders-tls"}
    made = patched(pod(asked, spec=spec))["spec"]
    assert [one["name"] for one in made["initContainers"]] == ["stilltrue-agent", "migrate"]
    assert [one["name"] for one in made["volumes"]] == ["cache", "stilltrue-agent", "stilltrue-tls"]
    web, nginx = made["containers"]
    assert nginx == spec["containers"][1]
    found = environment_of(web)
    assert found["PYTHONPATH"] == "/stilltrue-agent/stilltrue/site:/app"
    assert (found["STILLTRUE_SERVICE"], found["STILLTRUE_TLS_CA_FILE"]) == ("mine", "/stilltrue-tls/ca.crt")


@pytest.mark.parametrize(
    ("annotations", "spec", "named"),
    [
        ({"inject": "true"}, {}, "are mutually exclusive"),
        ({"workers": "3"}, {}, "stilltrue.dev/workers does not apply to the agent"),
        ({"python-containers": "web"}, {}, "no container web"),
        ({}, {"containers": [{"name": "o", "env": [{"name": "PYTHONPATH", "valueFrom": {}}]}]}, "PYTHONPATH"),
    ],
)
def test_an_agent_that_cannot_be_injected_is_a_warning(annotations: dict[str, str], spec: dict[str, Any], named: str) -> None:
    response = answered(pod({"inject-python": "true", "service": "orders", **annotations}, spec=spec))
    assert "patch" not in response
    assert named in response["warnings"][0]


def test_an_agent_present_or_not_requested_is_not_injected() -> None:
    there = {"initContainers": [AGENT["container"]]}
    assert "patch" not in answered(pod({"inject-python": "true", "service": "orders"}, spec=there))
    assert "patch" not in answered(pod({"inject-python": "false", "service": "orders"}))


def test_a_pod_with_the_injected_agent_is_valid(
    rendered: Callable[..., list[dict[str, Any]]], kubernetes_validate: ModuleType
) -> None:
    maps = [each["data"] for each in rendered("injector") if each["kind"] == "ConfigMap"]
    agent = next(json.loads(data["agent.json"]) for data in maps if "agent.json" in data)
    made = patched(pod({"inject-python": "true", "service": "orders", "tls-secret": "orders-tls"}), agent=agent)
    for version in ("1.29", "1.37"):
        kubernetes_validate.validate(made, version, strict=True)


def test_a_program_without_the_agent_joins_with_the_injected_copy(tmp_path: Path) -> None:
    """What the init container does, and then the program's own container."""
    copied = subprocess.run(
        [sys.executable, "-m", "stilltrue", "copy", str(tmp_path)], check=True, capture_output=True, text=True, timeout=60
    )
    site = copied.stdout.strip()
    assert site == str(tmp_path / "stilltrue" / "site")
    code = "import sys, stilltrue; print(stilltrue.__file__, 'stilltrue.launch' in sys.modules)"
    told = subprocess.run(
        [sys.executable, "-S", "-c", f"import sitecustomize; {code}"],
        check=True, capture_output=True, text=True, timeout=60, env={"PYTHONPATH": site, "STILLTRUE_RUN_PID": "1"},
    )  # fmt: skip
    assert told.stdout.split() == [str(tmp_path / "stilltrue" / "__init__.py"), "True"]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("webhook")
    (folder / "sidecar.json").write_text(json.dumps(SIDECAR))
    new_certificate(folder)
    return folder


def new_certificate(folder: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not here, and makes the certificate")
    subject = ("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2")
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", str(folder / "tls.key"))
    subprocess.run(
        ["openssl", "req", "-x509", *key, *subject, "-out", str(folder / "tls.crt")], check=True, capture_output=True
    )


@pytest.fixture(scope="module")
def address(files: Path) -> Iterator[str]:
    """Where a webhook listens that is a process of its own."""
    code = "from detector.commands.processes.webhook import webhook; webhook()"
    flags = [
        f"--{name}-file={files / file}"
        for name, file in (("tls-cert", "tls.crt"), ("tls-key", "tls.key"), ("sidecar", "sidecar.json"))
    ]
    command = [sys.executable, "-c", code, "--port=0", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            found = re.search(r"https=(\S+)", process.stdout.readline())
            assert found, process.stderr.read() if process.stderr else ""
            yield f"https://{found[1]}"
        finally:
            process.terminate()
            assert process.wait(10) == 0


def ask(address: str, files: Path, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    trust = ssl.create_default_context(cafile=str(files / "tls.crt"))
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trust))
    try:
        with opener.open(urllib.request.Request(address + path, data=body), timeout=10) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def test_the_webhook_answers_over_https_with_the_newest_certificate(address: str, files: Path) -> None:
    review = {"request": {"uid": "u-2", "namespace": "shop", "object": pod(asking())}}
    status, body = ask(address, files, "/inject?timeout=5s", json.dumps(review).encode())
    assert status == 200
    assert json.loads(body)["response"]["patchType"] == "JSONPatch"
    new_certificate(files)
    assert ask(address, files, "/healthz") == (200, b"ok\n")


def test_the_log_says_of_which_pod_why_it_starts_without_a_sidecar(caplog: pytest.LogCaptureFixture) -> None:
    """The one who creates a Deployment never sees the API server's warnings about its pods."""
    hook = Webhook(SIDECAR, Log("stilltrue-test-webhook"))
    caplog.set_level("INFO", "stilltrue-test-webhook")
    for asked in (ASKED, asking(inbound_prot="1")):
        hook._review(json.dumps({"request": {"uid": "u-3", "namespace": "shop", "object": pod(asked)}}).encode())
    told = [json.loads(LineFormatter(as_json=True).format(record)) for record in caplog.records]
    assert [(each["level"], each["namespace"], each["pod"], each["injected"]) for each in told] == [
        ("info", "shop", "orders-", True),
        ("warning", "shop", "orders-", False),
    ]
    assert "unknown annotation stilltrue.dev/inbound-prot" in told[1]["warning"]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/inject", b"nonsense", 400),
        ("/inject", b"[]", 400),
        ("/inject", b"{}", 400),
        ("/inject", b'{"request": {"uid": 1, "object": 7}}', 400),
        ("/inject", b"x" * (4 * 2**20 + 1), 413),
        ("/elsewhere", b"{}", 404),
        ("/elsewhere", None, 404),
    ],
)
def test_an_invalid_review_is_refused_and_the_next_is_served(
    address: str, files: Path, path: str, body: bytes | None, status: int
) -> None:
    try:
        assert ask(address, files, path, body)[0] == status
    except (ConnectionError, urllib.error.URLError):
        assert status == 413, "only what is too long to read may end in a broken pipe"
    assert ask(address, files, "/healthz")[0] == 200


def test_plaintext_is_refused(address: str) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with pytest.raises((ConnectionError, http.client.HTTPException, urllib.error.URLError)):
        opener.open(address.replace("https", "http") + "/healthz", timeout=10)
