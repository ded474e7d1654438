"""Injection of the Python agent: an init container copies it to a volume, and variables make Python load it. Pure.

Rules:

1. A pod is patched if its annotation ``stilltrue.dev/inject-python`` is "true" and no container has our container's name.
2. Variables that a container sets are not overwritten: our folder is prepended to ``PYTHONPATH``, and other variables are added
   only if they are missing. (A ``PYTHONPATH`` that the image sets is not visible here, and ours replaces it.)
3. Other programs ignore these variables. To patch only some containers, name them in ``python-containers``.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from detector.sidecar.patch_operations import (
    PREFIX,
    TLS_FOLDER,
    TLS_VOLUME,
    AnnotationError,
    Operation,
    Pod,
    added,
    service_of,
    set_key,
)

ANNOTATION = "inject-python"
VOLUME, FOLDER = "stilltrue-agent", "/stilltrue-agent"
SITE = f"{FOLDER}/stilltrue/site"
FIRST_PROCESS = "1"
_TLS = {"STILLTRUE_TLS_CA_FILE": "ca.crt", "STILLTRUE_TLS_CERT_FILE": "tls.crt", "STILLTRUE_TLS_KEY_FILE": "tls.key"}
_KNOWN = frozenset({ANNOTATION, "inject", "status", "service", "labels", "python-containers", "tls-secret"})


def requested(pod: Pod) -> bool:
    """Whether the pod's annotations request the agent."""
    return _annotations_of(pod).get(ANNOTATION) == "true"


def patch(pod: Pod, agent: Mapping[str, Any]) -> list[Operation]:
    """Return the JSON patch that injects ``agent``, which has the init ``container`` and the address of the ``detector``.

    Raises :class:`~detector.sidecar.patch_operations.AnnotationError`.
    """
    annotations = _annotations_of(pod)
    for name in sorted(annotations.keys() - _KNOWN):
        raise AnnotationError(f"{PREFIX}{name} does not apply to the agent; known: {', '.join(sorted(_KNOWN))}")
    secret = annotations.get("tls-secret", "")
    return [
        *added(pod["spec"], "/spec", "initContainers", agent["container"], first=True),
        *_programs(pod, annotations, _variables(pod, annotations, agent)),
        *_volumes(pod["spec"], secret),
        *set_key(pod["metadata"], "/metadata", "annotations", f"{PREFIX}status", "injected"),
    ]


def _annotations_of(pod: Pod) -> dict[str, str]:
    of_pod = (pod.get("metadata") or {}).get("annotations") or {}
    return {name.removeprefix(PREFIX): value for name, value in of_pod.items() if name.startswith(PREFIX)}


def _variables(pod: Pod, annotations: Mapping[str, str], agent: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the agent's variables, ordered so that later ones may refer to earlier ones."""
    values: dict[str, str] = {
        "STILLTRUE_DETECTOR": agent["detector"],
        "STILLTRUE_SERVICE": service_of(pod, annotations),
        "STILLTRUE_RUN_PID": FIRST_PROCESS,
        **({"STILLTRUE_LABELS": annotations["labels"]} if "labels" in annotations else {}),
        **({name: f"{TLS_FOLDER}/{file}" for name, file in _TLS.items()} if annotations.get("tls-secret") else {}),
    }
    pod_name = {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    return [*({"name": name, "value": value} for name, value in values.items()), pod_name]


def _programs(pod: Pod, annotations: Mapping[str, str], variables: list[dict[str, Any]]) -> Iterator[Operation]:
    containers = pod["spec"]["containers"]
    named = {part.strip() for part in annotations.get("python-containers", "").split(",") if part.strip()}
    if missing := named - {container["name"] for container in containers}:
        raise AnnotationError(f"{PREFIX}python-containers: the pod has no container {', '.join(sorted(missing))}")
    mounts = [{"name": VOLUME, "mountPath": FOLDER, "readOnly": True}]
    if annotations.get("tls-secret"):
        mounts.append({"name": TLS_VOLUME, "mountPath": TLS_FOLDER, "readOnly": True})
    for index, container in enumerate(containers):
        if not named or container["name"] in named:
            made = copy.deepcopy(dict(container))
            made["env"] = _environment(container, variables)
            made["volumeMounts"] = [*(container.get("volumeMounts") or []), *mounts]
            yield {"op": "replace", "path": f"/spec/containers/{index}", "value": made}


def _environment(container: Mapping[str, Any], variables: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add our variables to the container's (rule 2)."""
    given = [dict(variable) for variable in container.get("env") or ()]
    names = {variable["name"] for variable in given}
    for variable in given:
        if variable["name"] == "PYTHONPATH":
            if "valueFrom" in variable:
                raise AnnotationError(f"container {container['name']} sets PYTHONPATH with valueFrom: set it with value")
            variable["value"] = ":".join(filter(None, (SITE, variable.get("value", ""))))
    path = [] if "PYTHONPATH" in names else [{"name": "PYTHONPATH", "value": SITE}]
    return [*given, *path, *(variable for variable in variables if variable["name"] not in names)]


def _volumes(spec: Mapping[str, Any], secret: str) -> Iterator[Operation]:
    """Add our volumes to the pod's."""
    ours: list[dict[str, Any]] = [{"name": VOLUME, "emptyDir": {}}]
    if secret:
        ours.append({"name": TLS_VOLUME, "secret": {"secretName": secret}})
    yield {"op": "add", "path": "/spec/volumes", "value": [*(spec.get("volumes") or []), *ours]}
