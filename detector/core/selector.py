"""Selectors of scopes: the labels that a process must have. A sidecar reads settings with them, and needs no snapshots."""

from __future__ import annotations

from collections.abc import Mapping

from stilltrue.model import ProcessState


def parse_selector(text: str) -> dict[str, str]:
    """Parse ``team=payments,zone=a`` into labels that must all match; every process has a label ``service``.

    Raises
    ------
    ValueError
        When a part is not of the form ``label=value``.
    """
    labels = {}
    for part in text.split(","):
        label, equals, value = (word.strip() for word in part.partition("="))
        if not equals or not label or not value:
            raise ValueError(f"a scope must be label=value[,label=value...], not {text!r}")
        labels[label] = value
    return labels


def has_labels(state: ProcessState, labels: Mapping[str, str]) -> bool:
    """Whether a process has all of ``labels``."""
    own = {"service": state.service, **state.labels}
    return all(own.get(label) == value for label, value in labels.items())
