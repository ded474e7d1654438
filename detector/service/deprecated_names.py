"""Former names of settings and JSON keys: settings are accepted under both names, JSON is printed with both.

The users' table is in docs/detector.md, under "Names that have changed".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SETTINGS: Mapping[str, str] = {
    "archive_queue_max": "store_queue_max",
    "documents_max": "store_documents_max",
    "documents_pinned_max": "store_documents_pinned_max",
    "history_bytes_max": "archive_bytes_max",
    "summaries_max": "store_summaries_max",
    "wish_seconds_min": "trigger_seconds_min",
    "wishes_burst_max": "triggers_burst_max",
}
"""Former name to present name."""
_KEYS = {"heard_at": "last_seen_at", "begun_by": "trigger"}


def former_names(setting: str) -> list[str]:
    """The former names of a setting."""
    return [former for former, name in SETTINGS.items() if name == setting]


def renamed_settings(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the values by present name, and the former names that were used, with their present ones. None is unset."""
    used = {former: name for former, name in SETTINGS.items() if values[former] is not None}
    present = {name: value for name, value in values.items() if name not in SETTINGS}
    return present | {name: values[former] for former, name in used.items()}, used


def with_former_keys(document: dict[str, Any]) -> dict[str, Any]:
    """``document`` with the former keys added."""
    return document | {former: document[name] for former, name in _KEYS.items() if name in document}
