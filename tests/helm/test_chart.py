"""The chart: golden renders, invalid values refused by key, restricted pods, labels, and flags that exist."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
from click.testing import CliRunner
from cryptography.x509 import DNSName, SubjectAlternativeName, load_pem_x509_certificate

from detector.cli import cli
from detector.service.settings import predicate_settings_from_texts

Objects = list[dict[str, Any]]
Documents = Callable[[str], list[Any]]
Rendered = Callable[..., Objects]
Helm = Callable[..., subprocess.CompletedProcess[str]]

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "stilltrue"
TLS = "tls.enabled=true,tls.existingSecret=certificate"
PROBE = "probe.databases[0].name=a,probe.databases[0].dsnSecret.name=b"
KAFKA = "scaleOut.enabled=true,scaleOut.kafka.servers=kafka:9092"
CI = sorted(path.name.removesuffix("-values.yaml") for path in (CHART / "ci").glob("*-values.yaml"))


def pods(objects: Objects) -> Iterator[dict[str, Any]]:
    """Every pod that the objects make: its metadata and spec."""
    for each in objects:
        match each["kind"]:
            case "Pod":
                yield each
            case "StatefulSet" | "Deployment":
                yield each["spec"]["template"]
            case "CronJob":
                yield each["spec"]["jobTemplate"]["spec"]["template"]


def containers(objects: Objects) -> Iterator[dict[str, Any]]:
    for pod in pods(objects):
        yield from pod["spec"].get("initContainers", [])
        yield from pod["spec"]["containers"]


def one(objects: Objects, kind: str) -> dict[str, Any]:
    (found,) = [each for each in objects if each["kind"] == kind]
    return found


def test_generated_files_are_up_to_date(remake: Helm, helm: Helm) -> None:
    done = remake("--check")
    assert done.returncode == 0, f"{done.stdout}{done.stderr}run helm/tools/remake.py and commit"


def test_helm_lint_passes_for_every_ci_file(helm: Helm) -> None:
    for name in CI:
        done = helm("lint", "--strict", str(CHART), "--kube-version", "1.29.0", "-f", str(CHART / "ci" / f"{name}-values.yaml"))
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("detectr.logFormat=json", "detectr"),
        ("detector.settings.periodSecond=1", "periodSecond"),
        ("detector.settings.periodSeconds=-1", "periodSeconds"),
        ("detector.logFormat=xml", "logFormat"),
        ("service.grpcPort=70000", "grpcPort"),
        ("service.grpcPort=http", "grpcPort"),
        ("image.digest=latest", "digest"),
        ("persistence.size=big", "size"),
        ("detector.resources.limits.memory=256MB", "memory"),
        ("detector.resources.requests.cpu=500mb", "cpu"),
        ("sidecar.resources.limits.memory=1 Gi", "memory"),
        ("injector.resources.limit.memory=1Gi", "limit"),
        ("certificate.selfSigned=true,certificate.enabled=true,certificate.issuerRef.name=a", "certificate.selfSigned"),
        ("detector.httpHost=127.0.0.1", "httpHost"),
        ("serviceMonitor.interval=often", "interval"),
        ("pipeline.mode=sometimes", "mode"),
        ("networkPolicy.enabled=yes", "networkPolicy"),
        ("networkPolicy.agents={shop}", "networkPolicy/agents/0"),
        ("networkPolicy.agents[0].namespaceSelector.team=shop", "'team' not allowed"),
        ("networkPolicy.egress={443}", "networkPolicy/egress/0"),
        ("imagePullSecrets={registry}", "imagePullSecrets/0"),
        ("ingress.enabled=true", "ingress.host"),
        ("httpRoute.enabled=true", "httpRoute.parentRefs"),
        ("tls.enabled=true", "tls.existingSecret"),
        ("tls.clientAuth=true", "tls.clientAuth needs tls.enabled"),
        ("tls.existingSecret=certificate", "tls.existingSecret needs tls.enabled"),
        ("scaleOut.collectors.tlsSecret=certificate", "scaleOut.collectors.tlsSecret needs tls.enabled"),
        ("certificate.selfSigned=true", "certificate.selfSigned need tls.enabled or injector.enabled"),
        ("tls.rolesSecret=roles", "tls.rolesSecret needs tls.enabled"),
        ("detector.allowPlaintext=false", "detector.allowPlaintext"),
        ("tls.enabled=true,tls.clientAuth=true,certificate.selfSigned=true", "certificate.selfSigned keeps no key"),
        ("tls.enabled=true,certificate.enabled=true", "certificate.issuerRef.name"),
        (f"{TLS},tls.rolesSecret=roles,{KAFKA}", "tls.rolesSecret with scaleOut.enabled needs tls.clientAuth"),
        (f"{TLS},tls.rolesSecret=roles,{PROBE}", "tls.rolesSecret with probe.databases needs tls.clientAuth"),
        (f"{TLS},tls.clientAuth=true,{PROBE}", "tls.clientAuth with probe.databases needs probe.tlsSecret"),
        ("injector.enabled=true", "injector.existingSecret"),
        ("podMonitor.enabled=true", "sidecar.adminHost"),
        ("pipeline.mode=sparkapplication", "pipeline.sparkapplication.archiveUrl"),
        (
            "pipeline.mode=sparkapplication,pipeline.sparkapplication.archiveUrl=s3://b/archive",
            "pipeline.sparkapplication.outputClaim or outputUrl",
        ),
        ("pipeline.mode=cronjob,persistence.enabled=false", "persistence.enabled"),
        ("detector.enabled=false,sidecar.detector=http://detector:7600", "sidecar/detector"),
        ("detector.enabled=false,sidecar.detector=detector", "sidecar/detector"),
        (
            ",".join(f"probe.databases[{at}].name=a,probe.databases[{at}].dsnSecret.name=b" for at in (0, 1)),
            "probe.databases: two have the name a",
        ),
        ("prometheusRule.enabled=true,prometheusRule.disabled={StilltrueDedlock}", "StilltrueDedlock"),
        ("detector.enabled=false,sidecar.detector=detector:99999", "sidecar/detector"),
        ("sidecar.adminPort=15006", "sidecar/adminPort"),
        ("detector.scopes.a b.team=x", "detector/scopes"),
        ("image.registry=https://registry.example.org", "image/registry"),
        ("global.imageRegistry=http://registry.example.org", "global/imageRegistry"),
        ("ingress.enabled=true,ingress.host=https://pages.example.org", "ingress/host"),
        ("ingress.enabled=true,ingress.host=pages.example.org,ingress.path=pages", "ingress/path"),
        ("scaleOut.enabled=true,scaleOut.kafka.servers=kafka:99999", "scaleOut/kafka/servers"),
        ("service.grpcPort=7601", "service.grpcPort and service.httpPort are both 7601"),
        ("scaleOut.enabled=true,scaleOut.kafka.servers=http://kafka:9092", "scaleOut/kafka/servers"),
        ("scaleOut.enabled=true,scaleOut.kafka.servers=kafka://kafka:9092", "scaleOut/kafka/servers"),
        (
            "standby.enabled=true,persistence.existingClaim=a,podDisruptionBudget.enabled=true",
            "podDisruptionBudget.maxUnavailable",
        ),
    ],
)
def test_wrong_values_are_refused_by_their_key(value: str, named: str, helm: Helm) -> None:
    done = helm("template", "watch", str(CHART), "--kube-version", "1.29.0", "--set", value)
    assert done.returncode != 0
    assert named in done.stderr


def test_quantities_valid_in_kubernetes_are_accepted(helm: Helm) -> None:
    for value in ("256Mi", "1.5Gi", "1000000", "2G"):
        done = helm(
            "template", "watch", str(CHART), "--kube-version", "1.29.0", "--set", f"detector.resources.limits.memory={value}"
        )
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "value",
    [
        "image.registry=localhost:5000",
        "image.registry=registry.example.org/team/tools",
        "scaleOut.enabled=true,scaleOut.kafka.servers=kafka-0:9092\\,kafka-1:65535",
        "scaleOut.enabled=true,scaleOut.kafka.servers=s3://bucket/records",
        "detector.enabled=false,sidecar.detector=[::1]:7600",
        "ingress.enabled=true,ingress.host=*.example.org,ingress.path=/pages",
        "detector.scopes.shop-2.team=x",
        f"{TLS},tls.rolesSecret=roles",
        f"{TLS},tls.rolesSecret=roles,tls.clientAuth=true,{PROBE},probe.tlsSecret=probe",
        f"{TLS},tls.rolesSecret=roles,tls.clientAuth=true,{KAFKA},scaleOut.collectors.tlsSecret=collectors",
        f"{TLS},tls.rolesSecret=roles,tls.clientAuth=true,{PROBE},probe.detector=elsewhere:7600",
    ],
)
def test_less_common_values_are_accepted(value: str, helm: Helm) -> None:
    done = helm("template", "watch", str(CHART), "--kube-version", "1.29.0", "--set", value)
    assert done.returncode == 0, done.stderr


def test_predicate_settings_reach_the_detector_as_they_are_in_the_values(rendered: Rendered) -> None:
    settings = {"deadlock": {"never": ["billing-*", "b: c"], "victims": "least-work"}, "token-lost": {"expected": 3}}
    objects = rendered("default", "--set-json", f"detector.predicates={json.dumps(settings)}")
    args = one(objects, "StatefulSet")["spec"]["template"]["spec"]["containers"][0]["args"]
    given = [arg.removeprefix("--set=") for arg in args if arg.startswith("--set=")]
    assert predicate_settings_from_texts(given) == settings


@pytest.mark.parametrize(
    ("ingress", "base_path"),
    [
        ("path=/stilltrue", ["--base-path=/stilltrue"]),
        ("path=/ops/stilltrue/", ["--base-path=/ops/stilltrue"]),
        ("path=/", []),
        ("path=/stilltrue,pathType=Exact", []),
        ("path=/stilltrue(/|$)(.*),pathType=ImplementationSpecific", []),
        ("path=/stilltrue,enabled=false", []),
    ],
)
def test_pages_behind_an_ingress_have_its_path_in_their_links(ingress: str, base_path: list[str], rendered: Rendered) -> None:
    values = ["ingress.enabled=true", "ingress.host=pages.example.org", *(f"ingress.{one}" for one in ingress.split(","))]
    objects = rendered("default", *(part for value in values for part in ("--set", value)))
    args = one(objects, "StatefulSet")["spec"]["template"]["spec"]["containers"][0]["args"]
    assert [arg for arg in args if arg.startswith("--base-path")] == base_path


@pytest.mark.parametrize(("port", "named"), [("7602", []), ("7700", ["7700"])])
def test_a_check_in_the_sidecar_finds_its_admin_port(port: str, named: list[str], rendered: Rendered) -> None:
    objects = rendered("injector", "--set", f"sidecar.adminPort={port}")
    (sidecar,) = [json.loads(each["data"]["sidecar.json"]) for each in objects if "sidecar.json" in each.get("data", {})]
    assert f"--admin-port={port}" in sidecar["args"]
    assert [each["value"] for each in sidecar["env"] if each["name"] == "STILLTRUE_SIDECAR_ADMIN_PORT"] == named


@pytest.mark.parametrize("own", [True, False])
def test_probes_report_to_a_detector_that_exists_from_an_account_that_exists(own: bool, rendered: Rendered) -> None:
    values = [PROBE, f"detector.enabled={str(own).lower()}", "sidecar.detector=elsewhere:7600"]
    objects = rendered("default", *(part for value in values for part in ("--set", value)))
    pod = one(objects, "Deployment")["spec"]["template"]["spec"]
    (address,) = [each["value"] for each in pod["containers"][0]["env"] if each["name"] == "STILLTRUE_DETECTOR"]
    assert address.startswith("watch-" if own else "elsewhere:7600")
    assert pod["serviceAccountName"] == one(objects, "ServiceAccount")["metadata"]["name"]


def test_one_registry_for_all_images(helm: Helm) -> None:
    values = "global.imageRegistry=mirror.example.org,injector.enabled=true,certificate.selfSigned=true,pipeline.mode=cronjob"
    done = helm("template", "watch", str(CHART), "--kube-version", "1.29.0", "--set", values)
    images = re.findall(r"""image"?: "?([^"\s,]+)""", done.stdout)
    assert len(images) >= 6
    assert {image.split("/")[0] for image in images} == {"mirror.example.org"}


def test_the_chart_signs_certificates_that_the_api_server_and_agents_can_check(helm: Helm, documents: Documents) -> None:
    values = "injector.enabled=true,certificate.selfSigned=true,tls.enabled=true"
    done = helm("template", "watch", str(CHART), "--namespace", "shop", "--kube-version", "1.29.0", "--set", values)
    objects = documents(done.stdout)
    secrets = {each["metadata"]["name"]: each["data"] for each in objects if each["kind"] == "Secret"}
    assert set(secrets) == {"watch-stilltrue-tls", "watch-stilltrue-injector-tls"}
    hook = one(objects, "MutatingWebhookConfiguration")["webhooks"][0]["clientConfig"]
    assert hook["caBundle"] == secrets["watch-stilltrue-injector-tls"]["ca.crt"]
    for secret, data in secrets.items():
        authority, certificate = (load_pem_x509_certificate(base64.b64decode(data[name])) for name in ("ca.crt", "tls.crt"))
        certificate.verify_directly_issued_by(authority)
        names = certificate.extensions.get_extension_for_class(SubjectAlternativeName).value.get_values_for_type(DNSName)
        service = secret.removesuffix("-tls")
        assert {service, f"{service}.shop.svc", f"{service}.shop.svc.cluster.local"} <= set(names)
        later = {f"*.{service}-headless.shop.svc.cluster.local", f"{service}-collectors.shop.svc.cluster.local"}
        assert secret.endswith("injector-tls") or later <= set(names), "kept when a standby or collectors come"


def test_every_pod_of_the_release_can_be_placed(helm: Helm, documents: Documents) -> None:
    values: dict[str, dict[str, Any]] = {
        part: {"tolerations": [{"operator": "Exists"}], "nodeSelector": {"pool": "infra"}, "priorityClassName": "high"}
        for part in ("detector", "injector", "pipeline")
    } | {"certificate": {"selfSigned": True}}
    values["injector"]["enabled"], values["pipeline"]["mode"] = True, "cronjob"
    done = helm("template", "watch", str(CHART), "--kube-version", "1.29.0", "--set-json", _assigned(values))
    specs = [pod["spec"] for pod in pods(documents(done.stdout))]
    assert len(specs) == 4
    for spec in specs:
        assert spec["tolerations"] == [{"operator": "Exists"}]
        assert (spec["nodeSelector"], spec["priorityClassName"]) == ({"pool": "infra"}, "high")


def _assigned(values: dict[str, Any]) -> str:
    return ",".join(f"{key}={json.dumps(value)}" for key, value in values.items())


def test_the_injector_is_spread_and_drainable_and_has_no_egress(rendered: Rendered) -> None:
    objects = [each for each in rendered("injector") if each["metadata"]["name"].endswith("-injector")]
    (spread,) = one(objects, "Deployment")["spec"]["template"]["spec"]["topologySpreadConstraints"]
    selected = one(objects, "Deployment")["spec"]["selector"]["matchLabels"]
    assert spread["labelSelector"]["matchLabels"] == selected
    assert one(objects, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == selected
    policy = one(objects, "NetworkPolicy")["spec"]
    assert (policy["podSelector"]["matchLabels"], policy["egress"]) == (selected, [])
    assert [port["port"] for rule in policy["ingress"] for port in rule["ports"]] == ["https"]


@pytest.mark.parametrize(
    ("values", "command"),
    [
        ("detector.logFormat=json", "exec watch-stilltrue-0 -- stilltrue ask deadlock\n"),
        (
            "tls.enabled=true,certificate.selfSigned=true",
            "-- stilltrue ask deadlock --detector watch-stilltrue.shop.svc.cluster.local:7600 --tls-ca-file /tls/ca.crt\n",
        ),
        (
            "standby.enabled=true,persistence.accessModes={ReadWriteMany}",
            "-- stilltrue ask deadlock --detector watch-stilltrue-0.watch-stilltrue-headless.shop.svc.cluster.local:7600,",
        ),
        ("tls.enabled=true,tls.existingSecret=a,tls.rolesSecret=b", "Questions need the role operator"),
        ("tls.enabled=true,certificate.selfSigned=true", "agents verify it with ca.crt of the Secret watch-stilltrue-tls"),
        ("scaleOut.enabled=true,scaleOut.kafka.servers=k:9092", "stilltrue ask deadlock --timeout-seconds 90\n"),
        ("detector.enabled=false,sidecar.detector=elsewhere:7600", "Agents dial   elsewhere:7600"),
    ],
)
def test_the_notes_give_commands_that_work_in_the_cluster(values: str, command: str, helm: Helm, tmp_path: Path) -> None:
    chart = shutil.copytree(CHART, tmp_path / "stilltrue")
    notes = '{{ include (print $.Template.BasePath "/NOTES.txt") . | indent 2 }}'
    (chart / "templates" / "notes.yaml").write_text(f"notes: |\n{notes}\n")
    where = ("--namespace", "shop", "--kube-version", "1.29.0", "--show-only", "templates/notes.yaml")
    done = helm("template", "watch", str(chart), *where, "--set", values)
    assert done.returncode == 0, done.stderr
    assert command in done.stdout
    assert ("exec" in done.stdout) == ("detector.enabled=false" not in values)


def test_narrow_network_rules_let_in_the_releases_own_pods(rendered: Rendered) -> None:
    objects = rendered("secure")
    rules = one(objects, "NetworkPolicy")["spec"]["ingress"]
    (own,) = {json.dumps(peer) for rule in rules for peer in rule["from"] if "podSelector" in peer}
    assert [len(rule["from"]) for rule in rules] == [2, 2]
    probes = [each["spec"]["template"]["metadata"]["labels"] for each in objects if each["kind"] == "Deployment"]
    for labels in (*probes, one(objects, "Pod")["metadata"]["labels"]):
        assert json.loads(own)["podSelector"]["matchLabels"].items() <= labels.items()
    narrow = (
        "--set",
        "networkPolicy.agents[0].podSelector.matchLabels.a=b",
        "--set",
        "networkPolicy.http[0].podSelector.matchLabels.a=b",
    )
    fleet = [each["spec"]["ingress"] for each in rendered("scale-out", *narrow) if each["kind"] == "NetworkPolicy"]
    assert [len(rules) for rules in fleet] == [1, 2, 2]
    assert all(json.loads(own) in rule["from"] for rules in fleet for rule in rules), "probes report to collectors"


@pytest.mark.parametrize("name", ["secure", "standby"])
def test_commands_in_the_pod_may_reach_the_detector_by_its_name(name: str, rendered: Rendered) -> None:
    """The notes give such a command; under TLS loopback is no name in the certificate, and a standby does not answer."""
    objects = rendered(name)
    egress = one(objects, "NetworkPolicy")["spec"]["egress"]
    assert {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]} in egress
    (own,) = [rule for rule in egress if any("podSelector" in to for to in rule.get("to", []))]
    detectors = [
        pod["metadata"]["labels"] for pod in pods(objects) if "--data=/data" in pod["spec"]["containers"][0].get("args", [])
    ]
    assert detectors
    assert all(own["to"][0]["podSelector"]["matchLabels"].items() <= labels.items() for labels in detectors)
    assert own["ports"] == [{"port": 7600, "protocol": "TCP"}]
    assert one(rendered("default"), "NetworkPolicy")["spec"]["egress"] == []


def test_a_probe_needs_a_named_database_and_its_address_from_a_secret(rendered: Rendered) -> None:
    def probes(name: str) -> dict[str, dict[str, Any]]:
        made = [each for each in rendered(name) if each["kind"] == "Deployment" and "-probe-" in each["metadata"]["name"]]
        return {each["metadata"]["name"]: each["spec"]["template"]["spec"] for each in made}

    assert probes("default") == {}
    found = probes("secure")
    assert set(found) == {"watch-stilltrue-probe-orders-db", "watch-stilltrue-probe-stock-db"}
    pod = found["watch-stilltrue-probe-orders-db"]
    (container,) = pod["containers"]
    variables = {one["name"]: one.get("value") or one["valueFrom"] for one in container["env"]}
    assert variables["STILLTRUE_PROBE_DSN"] == {"secretKeyRef": {"name": "orders-db-probe", "key": "address"}}
    assert (variables["STILLTRUE_SERVICE"], variables["STILLTRUE_INSTANCE"]) == ("orders", "orders-db")
    assert variables["STILLTRUE_TLS_KEY_FILE"] == "/stilltrue-tls/tls.key"
    assert pod["volumes"][0]["secret"] == {"secretName": "stilltrue-probe-tls"}
    known = {option.envvar for option in probe_options() if isinstance(option.envvar, str)}
    assert {name for name in variables if name.startswith("STILLTRUE_")} <= known
    (trusted,) = probes("standby").values()
    assert trusted["volumes"][0]["secret"]["items"] == [{"key": "ca.crt", "path": "ca.crt"}]


def probe_options() -> list[click.Parameter]:
    """What `stilltrue probe postgres` takes."""
    group = cli.get_command(click.Context(cli), "probe")
    assert isinstance(group, click.Group)
    return group.commands["postgres"].params


def test_an_older_kubernetes_is_refused(helm: Helm) -> None:
    done = helm("template", "watch", str(CHART), "--kube-version", "1.28.9")
    assert done.returncode != 0
    assert ">=1.29.0" in done.stderr


@pytest.mark.parametrize("name", CI)
def test_every_pod_meets_the_restricted_standard(name: str, rendered: Rendered) -> None:
    for pod in pods(rendered(name)):
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is False
        assert spec["enableServiceLinks"] is False, "a Service named stilltrue-serve would set STILLTRUE_SERVE_PORT"
    for container in containers(rendered(name)):
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["readOnlyRootFilesystem"] is True
        assert context["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize("name", CI)
def test_selectors_match_and_hold_nothing_that_changes(name: str, rendered: Rendered) -> None:
    objects = rendered(name)
    for each in objects:
        if each["kind"] in ("StatefulSet", "Deployment"):
            selector = each["spec"]["selector"]["matchLabels"]
            assert set(selector) - {"stilltrue.dev/replica"} == {
                "app.kubernetes.io/name",
                "app.kubernetes.io/instance",
                "app.kubernetes.io/component",
            }
            labels = each["spec"]["template"]["metadata"]["labels"]
            assert selector.items() <= labels.items()
            assert "helm.sh/chart" not in labels, "an upgrade of the chart alone would restart it"
        if each["kind"] == "Service":
            matching = [p for p in pods(objects) if each["spec"]["selector"].items() <= p["metadata"]["labels"].items()]
            assert len(matching) == (2 if name == "standby" else 1), each["metadata"]["name"]


def test_a_service_monitor_selects_the_address_and_not_the_headless_service(rendered: Rendered) -> None:
    objects = rendered("monitoring")
    selector = one(objects, "ServiceMonitor")["spec"]["selector"]["matchLabels"]
    matching = [
        each["metadata"]["name"]
        for each in objects
        if each["kind"] == "Service" and selector.items() <= each["metadata"]["labels"].items()
    ]
    assert matching == ["watch-stilltrue"]


def flags_of(command: str) -> dict[str, click.Option]:
    found = cli.get_command(click.Context(cli), command)
    assert found is not None, f"stilltrue {command} does not exist"
    return {flag: option for option in found.params if isinstance(option, click.Option) for flag in option.opts}


def our_commands(objects: Objects) -> Iterator[list[str]]:
    """The arguments of every container that runs `stilltrue`, including injected ones."""
    for container in containers(objects):
        if "args" in container and "stilltrue:" in container["image"] + ":":
            yield container["args"]
    for each in objects:
        if each["kind"] == "ConfigMap" and "sidecar.json" in each["data"]:
            yield json.loads(each["data"]["sidecar.json"])["args"]


@pytest.mark.parametrize("name", CI)
def test_every_flag_in_the_chart_exists(name: str, rendered: Rendered) -> None:
    for command, *arguments in our_commands(rendered(name)):
        known = flags_of(command)
        for argument in arguments:
            assert not argument.startswith("--") or argument.partition("=")[0] in known, f"stilltrue {command} {argument}"


@pytest.mark.parametrize("name", CI)
def test_every_setting_reaches_its_environment_variable(name: str, rendered: Rendered) -> None:
    twins = {f"STILLTRUE_SERVE_{option.name.upper()}": option for option in flags_of("serve").values() if option.name}
    config = next(
        each for each in rendered(name) if each["kind"] == "ConfigMap" and "STILLTRUE_SERVE_LOG_FORMAT" in each["data"]
    )
    for variable, value in config["data"].items():
        twins[variable].type_cast_value(click.Context(click.Command("serve")), value)


def test_a_change_of_the_settings_restarts_the_detector(rendered: Rendered) -> None:
    def checksum(*more: str) -> str:
        pod = one(rendered("default", *more), "StatefulSet")["spec"]["template"]
        return str(pod["metadata"]["annotations"]["checksum/config"])

    assert checksum("--set", "detector.settings.periodSeconds=2") != checksum("--set", "detector.settings.periodSeconds=3")


def test_the_webhook_never_keeps_a_pod_from_starting(rendered: Rendered) -> None:
    (webhook,) = one(rendered("injector"), "MutatingWebhookConfiguration")["webhooks"]
    assert webhook["failurePolicy"] == "Ignore"
    assert webhook["timeoutSeconds"] <= 5
    own = webhook["namespaceSelector"]["matchExpressions"][0]
    assert {"kube-system", "observability"} == set(own["values"])
    for asked in ("inject", "inject-python"):
        assert f'"stilltrue.dev/{asked}" in object.metadata.annotations' in webhook["matchConditions"][0]["expression"]


@pytest.fixture(scope="session")
def consumer(helm: Helm, tmp_path_factory: pytest.TempPathFactory, documents: Callable[[str], list[Any]]) -> dict[str, Any]:
    """The Deployment of a chart that depends on ours."""
    chart = tmp_path_factory.mktemp("consumer") / "orders"
    shutil.copytree(Path(__file__).parent / "consumer", chart)
    shutil.copytree(CHART, chart / "charts" / "stilltrue")
    done = helm("template", "shop", str(chart), "--namespace", "shop", "--kube-version", "1.29.0")
    assert done.returncode == 0, done.stderr
    (deployment,) = documents(done.stdout)  # and nothing else: the detector is elsewhere
    return dict(deployment)


def test_the_sidecar_can_be_added_to_a_users_deployment(consumer: dict[str, Any], kubernetes_validate: ModuleType) -> None:
    kubernetes_validate.validate(consumer, "1.29", strict=True)
    (sidecar,) = consumer["spec"]["template"]["spec"]["initContainers"]
    assert sidecar["restartPolicy"] == "Always"
    assert sidecar["image"] == "registry.example.org/stilltrue:0.1.0"
    assert sidecar["startupProbe"]["tcpSocket"] == {"port": 9090}
    assert sidecar["args"] == [
        "sidecar", "--service=orders", "--inbound=0.0.0.0:9090", "--app=127.0.0.1:8080", "--outbound=127.0.0.1:9091",
        "--upstream=authority-routing", "--workers=4", "--label=team=shop",
        "--detector=stilltrue.observability.svc.cluster.local:7600",
        "--admin-port=7602", "--tls-ca-file=/stilltrue-tls/ca.crt", "--tls-cert-file=/stilltrue-tls/tls.crt",
        "--tls-key-file=/stilltrue-tls/tls.key",
    ]  # fmt: skip


def test_the_flags_of_the_sidecar_in_a_users_deployment_exist(consumer: dict[str, Any]) -> None:
    (sidecar,) = consumer["spec"]["template"]["spec"]["initContainers"]
    known = flags_of("sidecar")
    assert [each for each in sidecar["args"][1:] if each.partition("=")[0] not in known] == []


@pytest.fixture(scope="session")
def notes(helm: Helm, tmp_path_factory: pytest.TempPathFactory, documents: Callable[[str], list[Any]]) -> Callable[..., str]:
    """What is said after the installation (Helm shows it only where there is a cluster, so here it becomes an object)."""
    chart = tmp_path_factory.mktemp("notes") / "stilltrue"
    shutil.copytree(CHART, chart)
    (chart / "templates" / "NOTES.txt").rename(chart / "files" / "notes")
    made = 'apiVersion: v1\nkind: Notes\ndata:\n  text: {{ tpl (.Files.Get "files/notes") . | quote }}\n'
    (chart / "templates" / "notes.yaml").write_text(made)

    def text(*arguments: str) -> str:
        done = helm(
            "template", "watch", str(chart), "--namespace", "observability", "--show-only=templates/notes.yaml", *arguments
        )
        assert done.returncode == 0, done.stderr
        return str(documents(done.stdout)[0]["data"]["text"])

    return text


def test_the_sidecar_accepts_the_templates_settings(consumer: dict[str, Any]) -> None:
    (sidecar,) = consumer["spec"]["template"]["spec"]["initContainers"]
    arguments = [each for each in sidecar["args"] if not each.startswith(("--tls-", "--admin-port"))]
    done = CliRunner().invoke(cli, [*arguments, "--admin-port=9", "--check"])
    assert done.exit_code == 1, done.output
    assert "not ready" in done.output


def test_the_notes_warn_if_the_operator_is_absent(notes: Callable[..., str]) -> None:
    warning = "WARNING: this cluster does not provide monitoring.coreos.com/v1"
    values = f"--values={CHART / 'ci' / 'monitoring-values.yaml'}"
    assert warning in notes(values)
    assert warning not in notes(values, "--api-versions=monitoring.coreos.com/v1")
    assert warning not in notes()


def test_the_notes_warn_of_open_access_and_missing_notifications(notes: Callable[..., str]) -> None:
    text = notes()
    assert "watch-stilltrue.observability.svc.cluster.local:7600" in text
    assert "No alerts are installed" in text
    assert "gRPC is in plaintext" in text
    secure = notes(f"--values={CHART / 'ci' / 'secure-values.yaml'}")
    assert "gRPC is in plaintext" not in secure
    assert "WARNING: this cluster does not provide cert-manager.io/v1" in secure


def test_pod_events_need_only_a_role_api_access_and_a_token(rendered: Rendered) -> None:
    plain = rendered("default")
    assert not [one for one in plain if one["kind"] in {"Role", "RoleBinding"}]
    told = rendered("default", "--set", "detector.kubernetesEvents.enabled=true")
    (role,) = (one for one in told if one["kind"] == "Role")
    assert role["metadata"]["namespace"] == "observability", "the release's, where none is named"
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
    ]
    (binding,) = (one for one in told if one["kind"] == "RoleBinding")
    pod = next(one for one in told if one["kind"] == "StatefulSet")["spec"]["template"]["spec"]
    assert binding["subjects"][0]["name"] == pod["serviceAccountName"]
    assert "--kubernetes-events=observability" in pod["containers"][0]["args"]
    assert "kubernetes" in {volume["name"] for volume in pod["volumes"]}
    before, after = (next(one for one in each if one["kind"] == "NetworkPolicy") for each in (plain, told))
    assert {"port": 443, "protocol": "TCP"} in after["spec"]["egress"][-1]["ports"]
    assert len(after["spec"]["egress"]) == len(before["spec"].get("egress") or []) + 1


def test_a_standby_shares_the_volume_and_a_lease_and_agents_know_both(rendered: Rendered) -> None:
    standby = ("--set", "standby.enabled=true", "--set", "persistence.accessModes={ReadWriteMany}")
    objects = rendered("injector", *standby)
    sets = [each for each in objects if each["kind"] == "StatefulSet"]
    assert [each["metadata"]["name"] for each in sets] == ["watch-stilltrue", "watch-stilltrue-standby"]
    volumes = [volume for pod in pods(objects) for volume in pod["spec"].get("volumes", []) if volume["name"] == "data"]
    claims = {volume["persistentVolumeClaim"]["claimName"] for volume in volumes}
    assert len(volumes) == 3, "both detectors, and the pipeline"
    assert claims == {one(objects, "PersistentVolumeClaim")["metadata"]["name"]}
    roles = [each for each in objects if each["kind"] == "Role"]
    leases = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    assert [rule for role in roles for rule in role["rules"]] == [
        {**leases, "resourceNames": ["watch-stilltrue"], "verbs": ["get", "update"]},
        {**leases, "verbs": ["create"]},
    ]
    for each in sets:
        pod = each["spec"]["template"]
        assert "--standby-lease=watch-stilltrue" in pod["spec"]["containers"][0]["args"]
        (account,) = [volume["projected"] for volume in pod["spec"]["volumes"] if volume["name"] == "kubernetes"]
        files = {
            item["path"] for source in account["sources"] for kind in source.values() for item in kind.get("items", [kind])
        }
        assert files == {"token", "ca.crt", "namespace"}
        selector, labels = each["spec"]["selector"]["matchLabels"], pod["metadata"]["labels"]
        assert selector.items() <= labels.items()
    (headless,) = [each for each in objects if each["kind"] == "Service" and each["spec"].get("clusterIP") == "None"]
    assert headless["spec"]["publishNotReadyAddresses"]
    rest = f"{headless['metadata']['name']}.observability.svc.cluster.local:7600"
    assert f"watch-stilltrue-0.{rest},watch-stilltrue-standby-0.{rest}" in str(objects), "the injector gives agents both"


def test_prometheus_does_not_scrape_the_one_that_stands_by(rendered: Rendered) -> None:
    """It has no metrics, so its target would be down, and an alert on targets would never end."""
    (endpoint,) = one(rendered("standby", "--set", "serviceMonitor.enabled=true"), "ServiceMonitor")["spec"]["endpoints"]
    assert {(rule["action"], *rule["sourceLabels"], rule["regex"]) for rule in endpoint["relabelings"]} == {
        ("drop", "__meta_kubernetes_endpoint_ready", "false"),
        ("drop", "__meta_kubernetes_endpointslice_endpoint_conditions_ready", "false"),
    }
    (endpoint,) = one(rendered("monitoring"), "ServiceMonitor")["spec"]["endpoints"]
    assert "relabelings" not in endpoint


def test_the_detector_is_scraped_under_the_job_that_the_alerts_select(rendered: Rendered) -> None:
    """The operator takes the Service's name, unless ``prometheusRule.job`` is set; one's own relabelings come after that."""
    own = "serviceMonitor.relabelings[0].action=labelkeep"
    objects = rendered("monitoring", "--set", "prometheusRule.job=watcher", "--set", own)
    (endpoint,) = one(objects, "ServiceMonitor")["spec"]["endpoints"]
    assert endpoint["relabelings"] == [{"targetLabel": "job", "replacement": "watcher"}, {"action": "labelkeep"}]
    assert 'job="watcher"' in json.dumps(one(objects, "PrometheusRule")).replace("\\", "")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (["standby.enabled=true"], "needs persistence.accessModes [ReadWriteMany]"),
        (["standby.enabled=true", "persistence.enabled=false"], "needs persistence.enabled: both detectors use one volume"),
    ],
)
def test_a_standby_needs_a_volume_that_both_mount(helm: Helm, values: list[str], said: str) -> None:
    done = helm(
        "template", "watch", str(CHART), "--kube-version", "1.29.0", *(word for each in values for word in ("--set", each))
    )
    assert done.returncode != 0
    assert said in done.stderr
