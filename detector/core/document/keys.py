"""Checks the keys of a snapshot document: a misspelt key is an error, an unknown one is ignored with a warning.

1. The keys of docs/design.md section 8, and those that `show --format json` adds, are known.
2. An annotation (``ANNOTATIONS``, or any key that begins with ``x-``) does not affect the snapshot; any object may have it.
3. Any other key that resembles a known one counts as misspelt. This is an error, since ignoring it could change the answer.
4. All other keys are ignored, and the caller is notified.
5. A verdict, as ``ask --json`` prints it, is an error: it would pass for an empty snapshot, of which nothing holds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from enum import Enum
from typing import Any

from detector.core.document.values import DocumentError, Path

OnUnknownKey = Callable[[DocumentError], object]
"""Called for each ignored unknown key, with an error that describes it and is not raised."""

ANNOTATIONS = frozenset({"$schema", "comment", "description", "expect", "id", "meta", "name", "note", "title"})
OWN_PREFIX = "x-"
OWN_HINT = 'keys of your own must begin with "x-"'
SIMILARITY_MIN = 0.78
"""The similarity (difflib's ratio) from which a key counts as a misspelling of another."""


class ObjectKind(Enum):
    """The kinds of object in a document, each with its known keys."""

    DOCUMENT = (
        "begun", "doubts", "ended", "forgetful", "id", "in_transit", "membership", "missing", "previous", "processes", "scope",
        "set_aside", "waits",
    )  # fmt: skip
    MEMBERSHIP = ("about", "decisive", "predicate", "text")
    PROCESS = ("activity", "facts", "labels", "service")
    WAIT = ("among", "deadline", "needs", "number", "since", "uncoloured", "waiter", "what")
    MESSAGE = ("facts", "source", "target", "what")


_OF_VERDICTS = frozenset({"predicate", "holds", "witness"})
_OF_SNAPSHOTS = frozenset({"processes", "waits", "in_transit"})
_EXPECTED = {kind: ANNOTATIONS.union(kind.value) for kind in ObjectKind}


def ignore_unknown_key(_ignored: DocumentError) -> None:
    """Ignore unknown keys silently."""


class KeyCheck:
    """Checks the keys of all objects in one document."""

    def __init__(self, on_unknown_key: OnUnknownKey) -> None:
        """``on_unknown_key`` is called once for each unknown key per kind of object."""
        self._on_unknown_key = on_unknown_key
        self._reported: set[tuple[ObjectKind, str]] = set()

    def check(self, kind: ObjectKind, keys: Collection[str], owner: Callable[[str], Path]) -> None:
        """Check ``keys``; ``owner`` returns the path of the object that has a given key.

        Raises
        ------
        DocumentError
            For a misspelt key.
        """
        if _EXPECTED[kind].issuperset(keys):
            return
        for key in sorted(set(keys) - _EXPECTED[kind]):
            if key.startswith(OWN_PREFIX) or (kind, key) in self._reported:
                continue
            path = (*owner(key), key)
            near = _closest(kind, key)
            if near is not None:
                raise DocumentError(f'unknown key; did you mean "{near}"? ({OWN_HINT})', path=path)
            self._reported.add((kind, key))
            self._on_unknown_key(DocumentError(f"unknown key, ignored ({OWN_HINT})", path=path))


def refuse_verdict(top: Collection[str]) -> None:
    """Raise :class:`.DocumentError` if a document with the keys ``top`` is a verdict (rule 5)."""
    if _OF_VERDICTS.issubset(top) and not _OF_SNAPSHOTS.intersection(top):
        text = "this is a verdict, not a snapshot; 'stilltrue show ID --format json' prints the snapshot"
        raise DocumentError(text, path=("predicate",))


def first_with(key: str, values: Sequence[Mapping[str, Any]]) -> int:
    """The index of the first of ``values`` that has ``key``."""
    return next(at for at, value in enumerate(values) if key in value)


def _closest(kind: ObjectKind, key: str) -> str | None:
    """The known key that ``key`` most likely misspells, or None."""
    normalized = {_normalized(known): known for known in kind.value}
    near = get_close_matches(_normalized(key), normalized, n=1, cutoff=SIMILARITY_MIN)
    return normalized[near[0]] if near else None


def _normalized(key: str) -> str:
    """The key without case and word separators."""
    return "".join(filter(str.isalnum, key.lower()))
