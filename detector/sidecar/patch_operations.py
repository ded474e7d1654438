"""Annotations and JSON patch operations (RFC 6902) of a pod, for both kinds of injection. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

PREFIX = "stilltrue.dev/"
TLS_VOLUME, TLS_FOLDER = "stilltrue-tls", "/stilltrue-tls"

Pod = Mapping[str, Any]
Operation = dict[str, Any]


class AnnotationError(ValueError):
    """An annotation is invalid; the message is one line that names it."""


def service_of(pod: Pod, annotations: Mapping[str, str]) -> str:
    """Return the service's name from the annotations or the pod's labels. Raises :class:`AnnotationError`."""
    labels = pod["metadata"].get("labels") or {}
    found = annotations.get("service") or labels.get("app.kubernetes.io/name") or labels.get("app")
    if not found:
        raise AnnotationError(f"{PREFIX}service is required: the service's name (or a label app.kubernetes.io/name or app)")
    return str(found)


def added(
    parent: Mapping[str, Any], at: str, name: str, item: Mapping[str, Any], *, first: bool = False
) -> Iterator[Operation]:
    """Add ``item`` to a list that may not exist."""
    if parent.get(name):
        yield {"op": "add", "path": f"{at}/{name}/{0 if first else '-'}", "value": item}
    else:
        yield {"op": "add", "path": f"{at}/{name}", "value": [item]}


def set_key(parent: Mapping[str, Any], at: str, name: str, key: str, value: str) -> Iterator[Operation]:
    """Set ``key`` in an object that may not exist."""
    if parent.get(name) is None:
        yield {"op": "add", "path": f"{at}/{name}", "value": {key: value}}
    else:
        yield {"op": "add", "path": f"{at}/{name}/{key.replace('~', '~0').replace('/', '~1')}", "value": value}
