"""Remakes what the chart generates from one source: values.schema.json, the README's table, the golden renders.

Run it after every change of the chart: ``.venv/bin/python helm/tools/remake.py`` (after ``helm/tools/install``). With
``--check`` it writes nothing, and ends with 1 when something is stale.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from detector.service.deprecated_names import former_names
from detector.service.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "stilltrue"
GOLDEN = ROOT / "tests" / "helm" / "golden"
HELM = ROOT / "build" / "tools" / "helm"
RELEASE, NAMESPACE, KUBERNETES = "watch", "observability", "1.29.0"
BEGIN, END = "<!-- values: begin -->", "<!-- values: end -->"

MADE_BY_CHART = (
    "host",
    "port",
    "http_host",
    "http_port",
    "data",
    "data_dir",
    "log_format",
    "scopes",
    "standby_lease",
    "standby_lease_seconds",
)
"""Settings that the chart gives itself."""

NAME = {"type": "string", "pattern": r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$", "maxLength": 253}
LABELS = {"type": "object", "additionalProperties": {"type": "string"}}
PORT = {"type": "integer", "minimum": 1, "maximum": 65535}
PORT_TEXT = r"0*([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
HOST_NAME = {"type": "string", "pattern": r"^((\*\.)?[a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$", "maxLength": 253}
REGISTRY = {"type": "string", "pattern": r"^([^/: ]+(:[0-9]+)?(/[^: ]+)?)?$"}
"""A registry has no scheme: containers would wait for an image whose name is not valid."""
DURATION = {"type": "string", "pattern": r"^([0-9]+(ms|[smhdwy]))+$"}
STRINGS = {"type": "array", "items": {"type": "string"}}
OBJECTS = {"type": "array", "items": {"type": "object"}}
SELECTOR = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"matchLabels": LABELS, "matchExpressions": OBJECTS},
}
PEERS = {
    "type": "array",
    "items": {
        "type": "object",
        "additionalProperties": False,
        "minProperties": 1,
        "properties": {"podSelector": SELECTOR, "namespaceSelector": SELECTOR, "ipBlock": {"type": "object"}},
    },
}
"""The API server only warns of an unknown key, and drops it: a selector without matchLabels would admit every pod."""
EXACT: dict[str, Mapping[str, Any]] = {
    "networkPolicy.agents": PEERS,
    "networkPolicy.http": PEERS,
    "networkPolicy.egress": {
        "type": "array",
        "items": {"type": "object", "additionalProperties": False, "properties": {"to": PEERS, "ports": OBJECTS}},
    },
    "injector.namespaceSelector": SELECTOR,
    "image.pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
    "scaleOut.assembly.image.digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
    "scaleOut.assembly.persistence.size": {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?([KMGTPE]i?)?$"},
    "scaleOut.assembly.partitions": {"type": "integer", "minimum": 1, "maximum": 10_000},
    "scaleOut.collectors.replicas": {"type": "integer", "minimum": 1},
    "scaleOut.collectors.tlsSecret": NAME,
    "scaleOut.kafka.configSecret": NAME,
    "sidecar.detector": {"type": "string", "pattern": f"^(.+:{PORT_TEXT})?$", "not": {"pattern": "^https?://"}},
    "sidecar.adminPort": {**PORT, "not": {"enum": [15001, 15006]}},
    "ingress.host": HOST_NAME,
    "ingress.path": {"type": "string", "pattern": "^/"},
    "httpRoute.hostnames": {"type": "array", "items": {**HOST_NAME, "minLength": 1}},
    "global.imageRegistry": REGISTRY,
    "image.registry": REGISTRY,
    "scaleOut.kafka.servers": {
        "type": "string",
        "pattern": rf"^([^:, ]+:{PORT_TEXT}(,[^:, ]+:{PORT_TEXT})*|[a-z0-9]+://.+)?$",
        "not": {"pattern": "^(https?|kafka|tcp|plaintext|ssl)://"},
    },
    "pipeline.cronjob.image.digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
    "image.digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
    "detector.logFormat": {"enum": ["json", "logfmt"]},
    "detector.httpHost": {"type": "string", "minLength": 1, "not": {"pattern": r"^(127\.|localhost$|::1$)"}},
    "probe.databases": {
        "type": "array",
        "items": {
            "type": "object",
            "additionalProperties": False,
            "required": ["name", "dsnSecret"],
            "properties": {
                "name": {"type": "string", "pattern": r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 40},
                "service": {"type": "string", "minLength": 1},
                "dsnSecret": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["name"],
                    "properties": {"name": NAME, "key": {"type": "string", "minLength": 1}},
                },
            },
        },
    },
    "probe.tlsSecret": NAME,
    "detector.scopes": {
        "type": "object",
        "additionalProperties": False,
        "patternProperties": {r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$": {**LABELS, "minProperties": 1}},
    },
    "detector.expect": {
        "type": "object",
        "additionalProperties": {
            "anyOf": [
                {"type": "integer", "minimum": 1},
                {"type": "array", "minItems": 1, "items": {"type": "string", "minLength": 1}},
            ]
        },
    },
    "detector.kubernetesEvents.namespaces": {"type": "array", "items": {**NAME, "minLength": 1}},
    "detector.predicates": {"type": "object", "additionalProperties": {"type": "object", "minProperties": 1}},
    "persistence.whenDeleted": {"enum": ["Retain", "Delete"]},
    "persistence.size": {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?([KMGTPE]i?)?$"},
    "standby.leaseSeconds": {"type": "integer", "minimum": 1, "maximum": 3600},
    "service.type": {"enum": ["ClusterIP", "NodePort", "LoadBalancer"]},
    "ingress.pathType": {"enum": ["Prefix", "Exact", "ImplementationSpecific"]},
    "podDisruptionBudget.maxUnavailable": {"type": ["integer", "string"]},
    "injector.podDisruptionBudget.maxUnavailable": {"type": ["integer", "string"]},
    "sidecar.adminHost": {"type": "string", "minLength": 1},
    "pipeline.mode": {"enum": ["off", "cronjob", "sparkapplication"]},
    "prometheusRule.severity": LABELS,
    "injector.timeoutSeconds": {"type": "integer", "minimum": 1, "maximum": 30},
    "injector.replicas": {"type": "integer", "minimum": 1},
}
CPU = {"type": ["number", "string"], "pattern": r"^[0-9]+(\.[0-9]+)?m?$"}
BYTES = {"type": ["integer", "string"], "pattern": r"^[0-9]+(\.[0-9]+)?([kMGTPE]|[KMGTPE]i)?$"}
QUANTITIES = {
    "type": "object",
    "properties": {"cpu": CPU, "memory": BYTES, "ephemeral-storage": BYTES},
    "additionalProperties": {"type": ["integer", "string"]},
}
RESOURCES = {
    "type": "object",
    "properties": {"requests": QUANTITIES, "limits": QUANTITIES, "claims": {"type": "array"}},
    "additionalProperties": False,
}
"""Requests and limits: 256MB and 1 GB are refused here, not by the API server halfway through an upgrade."""
BY_LAST: dict[str, Mapping[str, Any]] = {
    "grpcPort": PORT, "httpPort": PORT, "adminPort": PORT,
    "interval": DURATION, "scrapeTimeout": DURATION, "duration": DURATION, "renewBefore": DURATION,
    "namespace": NAME, "existingSecret": NAME, "existingClaim": NAME, "rolesSecret": NAME, "storageClass": NAME,
    "fullnameOverride": NAME, "nameOverride": NAME,
    "extraArgs": STRINGS, "namespaces": STRINGS, "hostnames": STRINGS, "extraDnsNames": STRINGS, "disabled": STRINGS,
    "accessModes": STRINGS,
    "imagePullSecrets": OBJECTS, "extraEnv": OBJECTS, "extraVolumes": OBJECTS, "extraVolumeMounts": OBJECTS,
    "tolerations": OBJECTS, "topologySpreadConstraints": OBJECTS, "relabelings": OBJECTS,
    "metricRelabelings": OBJECTS, "parentRefs": OBJECTS,
    "commonLabels": LABELS, "additionalLabels": LABELS, "labels": LABELS, "annotations": LABELS, "podLabels": LABELS,
    "podAnnotations": LABELS, "ruleLabels": LABELS, "nodeSelector": LABELS, "resources": RESOURCES,
}  # fmt: skip
FROM_KUBERNETES = ("podSecurityContext", "securityContext", "startupProbe", "livenessProbe", "readinessProbe")
"""Objects whose keys are Kubernetes' own, and checked there."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One documented key of values.yaml."""

    path: str
    text: str
    default: Any


def documented(text: str) -> dict[str, str]:
    """Each key's path, and the comment (``# --``) above it; a key without one is not in it."""
    comments: dict[str, str] = {}
    above: list[str] = []
    path: list[tuple[int, str]] = []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("# --"):
            above = [stripped[4:].strip()]
        elif stripped.startswith("#") and above:
            above.append(stripped[1:].strip())
        elif found := re.match(r"( *)([A-Za-z_][\w./-]*):", line):
            indent = len(found[1])
            path = [each for each in path if each[0] < indent] + [(indent, found[2])]
            if above:
                comments[".".join(name for _, name in path)] = " ".join(above)
            above = []
        elif not stripped.startswith("#"):
            above = []
    return comments


def keys(values: Mapping[str, Any], comments: Mapping[str, str], at: str = "") -> Iterator[Key]:
    """Every key with its comment; a key that has none, and no children that have, is an error."""
    for name, value in values.items():
        path = f"{at}{name}"
        if path in comments:
            yield Key(path=path, text=comments[path], default=value)
        elif isinstance(value, dict) and value:
            yield from keys(value, comments, f"{path}.")
        else:
            raise SystemExit(f"values.yaml: {path} has no comment ('# -- ...')")


def schema(values: Mapping[str, Any], comments: Mapping[str, str]) -> dict[str, Any]:
    """The JSON schema of the values: every unknown key is refused."""
    top = _object(values, comments, "")
    top["properties"]["global"] = {"type": "object", "properties": {"imageRegistry": REGISTRY}}
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": "The values of the chart stilltrue", **top}


def _object(values: Mapping[str, Any], comments: Mapping[str, str], at: str) -> dict[str, Any]:
    properties = {name: _property(value, comments, f"{at}{name}") for name, value in values.items()}
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _property(value: Any, comments: Mapping[str, str], path: str) -> dict[str, Any]:
    last = path.rpartition(".")[2]
    told = {"description": comments[path]} if path in comments else {}
    if path == "detector.settings":
        return {**told, **_settings()}
    exact = EXACT.get(path) or BY_LAST.get(last)
    if exact is not None:
        return {**told, **exact}
    if isinstance(value, dict):
        free = not value or last in FROM_KUBERNETES
        return {**told, **({"type": "object"} if free else _object(value, comments, f"{path}."))}
    if isinstance(value, list):
        return {**told, "type": "array"}
    kind = {bool: "boolean", int: "integer", float: "number", str: "string"}[type(value)]
    return {**told, "type": kind}


def _settings() -> dict[str, Any]:
    properties = {}
    for each in dataclasses.fields(Settings):
        if "low" not in each.metadata or each.name in MADE_BY_CHART:
            continue
        for name in (each.name, *former_names(each.name)):
            first, *rest = name.split("_")
            properties[first + "".join(word.capitalize() for word in rest)] = {
                "description": each.metadata["help"] if name == each.name else f"deprecated name of {each.name}",
                "type": "integer" if isinstance(each.default, int) else "number",
                "minimum": each.metadata["low"],
                "maximum": each.metadata["high"],
            }
    return {"type": "object", "additionalProperties": False, "properties": properties}


def table(values: Mapping[str, Any], comments: Mapping[str, str]) -> str:
    """The README's table."""
    rows = ["| Key | Default | What it does |", "|---|---|---|"]
    for key in keys(values, comments):
        default = json.dumps(key.default).replace("|", "\\|")
        rows.append(f"| `{key.path}` | `{default}` | {key.text} |")
    return "\n".join(rows)


def render(values_file: Path, kubernetes: str = KUBERNETES) -> str:
    """What Helm makes of the chart with these values."""
    command = [str(HELM), "template", RELEASE, str(CHART), "--namespace", NAMESPACE, "--kube-version", kubernetes]
    done = subprocess.run([*command, "--values", str(values_file)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{values_file.name}: {done.stderr.strip()}")
    return done.stdout


def made() -> Iterator[tuple[Path, str]]:
    """Every generated file and what has to be in it."""
    text = (CHART / "values.yaml").read_text()
    values, comments = yaml.safe_load(text), documented(text)
    readme = (CHART / "README.md").read_text()
    before, after = readme.split(BEGIN)[0], readme.split(END)[1]
    yield CHART / "README.md", f"{before}{BEGIN}\n{table(values, comments)}\n{END}{after}"
    yield CHART / "values.schema.json", json.dumps(schema(values, comments), indent=2) + "\n"
    for file in sorted((CHART / "ci").glob("*-values.yaml")):
        yield GOLDEN / file.name.replace("-values.yaml", ".yaml"), render(file)


def main() -> None:
    """Write what is stale, or only say so."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; end with 1 when something is stale")
    check = parser.parse_args().check
    if not HELM.exists():
        sys.exit(f"{HELM} is not here: run helm/tools/install")
    stale = []
    for path, text in made():
        if not path.exists() or path.read_text() != text:
            stale.append(str(path.relative_to(ROOT)))
            if not check:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
    sys.stdout.write("".join(f"{'stale' if check else 'remade'}: {name}\n" for name in stale))
    sys.exit(bool(check and stale))


if __name__ == "__main__":
    main()
