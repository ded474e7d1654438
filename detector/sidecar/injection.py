"""Sidecar injection: makes a JSON patch from an AdmissionReview and the sidecar container that the chart describes. Pure.

Rules:

1. Injection never prevents a pod from starting: every answer allows it. With invalid annotations, such as
   ``stilltrue.dev/inject: enabled`` (the word of other meshes), the pod starts without a sidecar and with a warning.
2. A pod is patched if its annotation ``stilltrue.dev/inject`` is "true" and no container has the sidecar's name.
3. A pod must also work without the patch. So the Service's ``targetPort`` is a named port (such as ``grpc``) of the program's
   container, and the patch moves the name to the sidecar. Probes of the program that use the name keep probing the program.
   Likewise, only the patch redirects variables that hold another service's address.
   Calls made by such a variable name the sidecar itself as their authority; the sidecar sends them to the address that the
   variable had. If the containers disagree on that address, the annotations have to name it, or the pod is not patched.
4. The sidecar is the first init container (a native sidecar, with ``restartPolicy: Always``), so that later init containers can
   call through it.
"""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from detector.ops.address import AddressError, parse_address
from detector.sidecar import agent_injection
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
from detector.sidecar.routing import BY_AUTHORITY

SIDECAR_LABEL = f"{PREFIX}sidecar"
TLS_FLAGS = {"--tls-ca-file": "ca.crt", "--tls-cert-file": "tls.crt", "--tls-key-file": "tls.key"}
INBOUND = "st-inbound"
OUTBOUND_PORT = 15001
INBOUND_PORT = 15006
PORT_MAX = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """The settings in a pod's annotations; ``flags`` are those of ``stilltrue sidecar``."""

    flags: tuple[str, ...]
    inbound: int
    tls_secret: str
    port_name: str = ""
    """The port name that the patch moves from the program to the sidecar; empty: none."""
    variables: tuple[str, ...] = ()
    """The program's variables that the patch sets to ``outbound``."""
    outbound: int = 0


def answer(review: Mapping[str, Any], sidecar: Mapping[str, Any], agent: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the AdmissionReview that answers ``review`` (admission.k8s.io/v1, of a pod).

    ``sidecar`` is the container to inject, before the annotations are applied; ``agent`` is for :mod:`.agent_injection`.
    Raises ``KeyError`` if ``review`` is not an AdmissionReview.
    """
    response: dict[str, Any] = {"uid": review["request"]["uid"], "allowed": True}
    pod = review["request"].get("object") or {}
    try:
        operations = _operations(pod, sidecar, agent)
        if operations:
            response["patchType"] = "JSONPatch"
            response["patch"] = base64.b64encode(json.dumps(operations).encode()).decode()
    except AnnotationError as error:  # rule 1
        what = "the sidecar was not injected" if f"{PREFIX}inject" in _annotations(pod) else "the agent was not injected"
        response["warnings"] = [f"stilltrue: {what}: {error}"]
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


def _operations(pod: Pod, sidecar: Mapping[str, Any], agent: Mapping[str, Any] | None) -> list[Operation]:
    for name in (f"{PREFIX}inject", f"{PREFIX}{agent_injection.ANNOTATION}"):
        if (value := _annotations(pod).get(name, "false")) not in ("true", "false"):
            raise AnnotationError(f'{name} is "{value}", neither "true" nor "false"')
    if _requested(pod) and agent_injection.requested(pod):
        raise AnnotationError(
            f"{PREFIX}inject and {PREFIX}{agent_injection.ANNOTATION} are mutually exclusive: the agent needs no sidecar"
        )
    if _requested(pod) and not _has(pod, str(sidecar["name"])):
        return patch(pod, sidecar, injection_of(pod))
    if agent is not None and agent_injection.requested(pod) and not _has(pod, str(agent["container"]["name"])):
        return agent_injection.patch(pod, agent)
    return []


def injection_of(pod: Pod) -> Injection:
    """Parse the annotations; raises :class:`AnnotationError`."""
    annotations = {
        name.removeprefix(PREFIX): value
        for name, value in (pod["metadata"].get("annotations") or {}).items()
        if name.startswith(PREFIX)
    }
    for name in sorted(annotations):
        if name not in _KNOWN:
            raise AnnotationError(f"unknown annotation {PREFIX}{name}; known: {', '.join(sorted(_KNOWN))}")
    port_name = annotations.get("port", "")
    if port_name and "app-port" in annotations:
        raise AnnotationError(f"{PREFIX}port already names the program's port: remove {PREFIX}app-port")
    app = _named_port(pod, port_name) if port_name else _port(annotations, "app-port")
    inbound = INBOUND_PORT if port_name and "inbound-port" not in annotations else _port(annotations, "inbound-port")
    if inbound == app:
        raise AnnotationError(f"{PREFIX}inbound-port must differ from the program's port, {app}")
    flags = [f"--service={service_of(pod, annotations)}", f"--inbound=0.0.0.0:{inbound}", f"--app=127.0.0.1:{app}"]
    outbound = 0
    variables = _listed(annotations, "outbound-env")
    if upstreams := _listed(annotations, "upstream"):
        if all("=" in upstream or upstream == BY_AUTHORITY for upstream in upstreams):
            upstreams += _destination(pod, variables)
        outbound = _port(annotations, "outbound-port") if "outbound-port" in annotations else OUTBOUND_PORT
        flags += [f"--outbound=127.0.0.1:{outbound}", *(f"--upstream={upstream}" for upstream in upstreams)]
    elif found := next((name for name in ("outbound-port", "outbound-env") if name in annotations), None):
        raise AnnotationError(f"{PREFIX}{found} needs {PREFIX}upstream, the destination of those calls")
    if "workers" in annotations:
        flags.append(f"--workers={_number(annotations, 'workers', 0, 1_000_000)}")
    flags += [f"--label={label}" for label in _listed(annotations, "labels")]
    return Injection(
        flags=tuple(flags),
        inbound=inbound,
        tls_secret=annotations.get("tls-secret", ""),
        port_name=port_name,
        variables=tuple(variables),
        outbound=outbound,
    )


def patch(pod: Pod, sidecar: Mapping[str, Any], injection: Injection) -> list[Operation]:
    """Return the JSON patch (RFC 6902) that injects the sidecar into the pod."""
    return [
        *added(pod["spec"], "/spec", "initContainers", _container(sidecar, injection), first=True),
        *_programs(pod["spec"]["containers"], injection),
        *_volume(pod, injection),
        *set_key(pod["metadata"], "/metadata", "labels", SIDECAR_LABEL, "true"),
        *set_key(pod["metadata"], "/metadata", "annotations", f"{PREFIX}status", "injected"),
    ]


def _annotations(pod: Pod) -> dict[str, str]:
    return (pod.get("metadata") or {}).get("annotations") or {}


def _requested(pod: Pod) -> bool:
    return _annotations(pod).get(f"{PREFIX}inject") == "true"


def _has(pod: Pod, name: str) -> bool:
    containers = [*(pod["spec"].get("initContainers") or []), *pod["spec"]["containers"]]
    return any(container["name"] == name for container in containers)


def _container(sidecar: Mapping[str, Any], injection: Injection) -> dict[str, Any]:
    made = copy.deepcopy(dict(sidecar))
    made["args"] = [*made["args"], *injection.flags]
    made["ports"] = [{"name": injection.port_name or INBOUND, "containerPort": injection.inbound}, *made.get("ports", [])]
    _renumber(made, INBOUND, injection.port_name or INBOUND)
    if injection.tls_secret:
        made["args"] += [f"{flag}={TLS_FOLDER}/{file}" for flag, file in TLS_FLAGS.items()]
        mount = {"name": TLS_VOLUME, "mountPath": TLS_FOLDER, "readOnly": True}
        made["volumeMounts"] = [*made.get("volumeMounts", []), mount]
    return made


def _programs(containers: Sequence[Mapping[str, Any]], injection: Injection) -> Iterator[Operation]:
    """Patch the pod's own containers (rule 3)."""
    for index, container in enumerate(containers):
        made = copy.deepcopy(dict(container))
        named = [port for port in made.get("ports") or () if injection.port_name and port.get("name") == injection.port_name]
        for port in named:
            del port["name"]
            _renumber(made, injection.port_name, port["containerPort"])
        for variable in made.get("env") or ():
            if variable["name"] in injection.variables:
                variable.pop("valueFrom", None)
                variable["value"] = f"127.0.0.1:{injection.outbound}"
        if made != container:
            yield {"op": "replace", "path": f"/spec/containers/{index}", "value": made}


def _renumber(container: dict[str, Any], name: str, port: str | int) -> None:
    """Make probes and hooks that use the port's name use ``port`` instead."""
    hooks = (container.get("lifecycle") or {}).values()
    for probe in (*(container.get(f"{kind}Probe") or {} for kind in ("startup", "readiness", "liveness")), *hooks):
        for action in ("httpGet", "tcpSocket"):
            if (probe.get(action) or {}).get("port") == name:
                probe[action]["port"] = port


def _named_port(pod: Pod, name: str) -> int:
    """Return the number of the pod's container port called ``name``."""
    ports = [port for container in pod["spec"]["containers"] for port in container.get("ports") or ()]
    found = [port["containerPort"] for port in ports if port.get("name") == name]
    if len(found) != 1:
        known = ", ".join(sorted(port["name"] for port in ports if port.get("name"))) or "none"
        raise AnnotationError(f"{PREFIX}port: {name!r} is not a named port of exactly one container (named ports: {known})")
    return int(found[0])


def _destination(pod: Pod, variables: Sequence[str]) -> list[str]:
    """Return the address that the program's ``variables`` have (rule 3), in a list; empty if no container has them."""
    every = [variable for container in pod["spec"]["containers"] for variable in container.get("env") or ()]
    found = {str(variable.get("value", "")).removeprefix("dns:///") for variable in every if variable["name"] in variables}
    try:
        addresses = [str(parse_address(value, port_min=1)) for value in found if "$(" not in value]
    except AddressError:
        addresses = []
    if len(addresses) != len(found) or len(found) > 1:
        raise AnnotationError(
            f"{PREFIX}outbound-env: the value of {', '.join(variables)} must be one HOST:PORT, where the sidecar sends calls "
            f"that do not name a service as their authority; or add such a HOST:PORT to {PREFIX}upstream"
        )
    return addresses


def _volume(pod: Pod, injection: Injection) -> Iterator[Operation]:
    if injection.tls_secret:
        yield from added(pod["spec"], "/spec", "volumes", {"name": TLS_VOLUME, "secret": {"secretName": injection.tls_secret}})


def _port(annotations: Mapping[str, str], name: str) -> int:
    return _number(annotations, name, 1, PORT_MAX)


def _number(annotations: Mapping[str, str], name: str, low: int, high: int) -> int:
    text = annotations.get(name)
    if text is None:
        raise AnnotationError(f"{PREFIX}{name} is required: {_KNOWN[name]}")
    if not text.isdecimal() or not low <= int(text) <= high:
        raise AnnotationError(f"{PREFIX}{name} must be a number from {low} to {high}, not {text!r}")
    return int(text)


def _listed(annotations: Mapping[str, str], name: str) -> list[str]:
    return [part.strip() for part in annotations.get(name, "").split(",") if part.strip()]


_KNOWN: Mapping[str, str] = {
    "inject": 'whether to inject the sidecar: "true"',
    "status": "what the webhook did",
    "service": "the service's name in verdicts",
    "port": "the name of the program's port, which is the Service's targetPort",
    "inbound-port": "the port for calls from outside; the Service's targetPort",
    "app-port": "the port that the program listens on",
    "outbound-port": f"the sidecar's port for the program's own calls ({OUTBOUND_PORT})",
    "outbound-env": "the program's variables with another service's address, to be set to the sidecar's: NAME,...",
    "upstream": "the destinations of these calls: [NAME=]HOST:PORT,... or authority-routing",
    "workers": "the number of calls the program serves at once",
    "labels": "labels of the process, for scopes: NAME=VALUE,...",
    "tls-secret": "a Secret with tls.crt, tls.key and ca.crt for the connection to the detector",
}
