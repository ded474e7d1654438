"""The names that settings and JSON keys had in earlier versions: settings are accepted by both, JSON is printed with both.

The table for people is in docs/detector.md, under "Names that have changed".
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
"""By the earlier name."""
_KEYS = {"heard_at": "last_seen_at", "begun_by": "trigger"}


def earlier_names(setting: str) -> list[str]:
    """The names that a setting had."""
    return [was for was, name in SETTINGS.items() if name == setting]


def renamed_settings(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The values by their present names, and by each earlier name that was used the present one; None is not given."""
    used = {was: name for was, name in SETTINGS.items() if values[was] is not None}
    present = {name: value for name, value in values.items() if name not in SETTINGS}
    return present | {name: values[was] for was, name in used.items()}, used


def with_earlier_keys(document: dict[str, Any]) -> dict[str, Any]:
    """A document with its earlier keys, too."""
    return document | {was: document[name] for was, name in _KEYS.items() if name in document}
