"""The chart's objects are strictly valid for Kubernetes 1.29 to the newest, and for the schemas of custom resources."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

Rendered = Callable[..., list[dict[str, Any]]]
Golden = Callable[[str], list[dict[str, Any]]]
Crds = dict[tuple[str, str], dict[str, Any]]

ROOT = Path(__file__).resolve().parents[2]
CI = sorted(path.name.removesuffix("-values.yaml") for path in (ROOT / "helm/stilltrue/ci").glob("*-values.yaml"))
VERSIONS = ("1.29", "1.30", "1.31", "1.32", "1.33", "1.34", "1.35", "1.36", "1.37")
FOREIGN = ("monitoring.coreos.com", "cert-manager.io", "gateway.networking.k8s.io", "sparkoperator.k8s.io")
"""Groups of resources that Kubernetes does not know by itself."""


def foreign(an_object: dict[str, Any]) -> bool:
    return str(an_object["apiVersion"]).rpartition("/")[0] in FOREIGN


def closed(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a custom resource as the API server's strict field validation reads it: unknown keys are errors."""
    made = dict(schema)
    if str(made.get("pattern", "")).startswith("^(?i)"):  # Go lets the flag stand there, Python does not
        made["pattern"] = "(?i)^" + made["pattern"].removeprefix("^(?i)")
    for name in ("items", "additionalProperties", "not"):
        if isinstance(made.get(name), dict):
            made[name] = closed(made[name])
    if "properties" in made:
        made["properties"] = {name: closed(each) for name, each in made["properties"].items()}
        if not made.get("x-kubernetes-preserve-unknown-fields"):
            made.setdefault("additionalProperties", False)
    return made


def test_the_newest_schema_is_tested(kubernetes_validate: ModuleType) -> None:
    assert ".".join(kubernetes_validate.latest_version().split(".")[:2]) == VERSIONS[-1]


@pytest.mark.parametrize("kubernetes", VERSIONS)
@pytest.mark.parametrize("name", CI)
def test_kubernetes_objects_match_the_golden_ones_and_are_valid(
    name: str, kubernetes: str, rendered: Rendered, golden: Golden, kubernetes_validate: ModuleType
) -> None:
    made = rendered(name, kubernetes=f"{kubernetes}.0")
    assert made == golden(name)
    objects = [each for each in made if not foreign(each)]
    assert len(objects) >= 4
    for each in objects:
        kubernetes_validate.validate(each, kubernetes, strict=True)


def test_an_unknown_key_would_be_found(rendered: Rendered, kubernetes_validate: ModuleType) -> None:
    stateful_set = next(each for each in rendered("default") if each["kind"] == "StatefulSet")
    wrong = {**stateful_set, "spec": {**stateful_set["spec"], "replica": 1}}
    with pytest.raises(kubernetes_validate.ValidationError, match="replica"):
        kubernetes_validate.validate(wrong, "1.29", strict=True)


@pytest.mark.parametrize("name", CI)
def test_custom_resources_are_valid(name: str, rendered: Rendered, crds: Crds, jsonschema: ModuleType) -> None:
    for each in filter(foreign, rendered(name)):
        schema = closed(crds[each["apiVersion"], each["kind"]])
        schema["properties"]["metadata"] = {"type": "object"}
        jsonschema.validate(each, schema, jsonschema.Draft202012Validator)


def test_every_custom_resource_is_rendered_by_the_ci_values(rendered: Rendered) -> None:
    kinds = {each["kind"] for name in CI for each in filter(foreign, rendered(name))}
    assert kinds == {
        "ServiceMonitor", "PodMonitor", "PrometheusRule", "Certificate", "HTTPRoute", "ScheduledSparkApplication",
    }  # fmt: skip


def test_an_unknown_key_of_a_custom_resource_would_be_found(rendered: Rendered, crds: Crds, jsonschema: ModuleType) -> None:
    monitor = next(each for each in rendered("monitoring") if each["kind"] == "ServiceMonitor")
    wrong = {**monitor, "spec": {**monitor["spec"], "selectors": {}}}
    with pytest.raises(jsonschema.ValidationError, match="selectors"):
        jsonschema.validate(wrong, closed(crds[monitor["apiVersion"], "ServiceMonitor"]), jsonschema.Draft202012Validator)


def test_without_values_nothing_needs_a_custom_resource(rendered: Rendered) -> None:
    assert not list(filter(foreign, rendered("default")))
