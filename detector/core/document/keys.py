"""The keys that a snapshot document may have: a misspelt one is an error, an unknown one is ignored with a warning.

1. The keys of docs/design.md section 8, and those that `show --format json` adds, are known.
2. An annotation (``ANNOTATIONS``, or any key that begins with ``x-``) does not affect the snapshot; any object may have it.
3. Any other key that resembles a known one is misspelt: an error, since ignoring it could change the answer.
4. All other keys are ignored, and the caller is notified.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from enum import Enum
from typing import Any

from detector.core.document.values import DocumentError, Path

OnUnknownKey = Callable[[DocumentError], object]
"""Called for each unknown key that is ignored, with an error that is not raised."""

ANNOTATIONS = frozenset({"$schema", "comment", "description", "expect", "id", "meta", "name", "note", "title"})
OWN_PREFIX = "x-"
OWN = 'keys of your own must begin with "x-"'
NEAR_SHARE_MIN = 0.78
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


_EXPECTED = {place: ANNOTATIONS.union(place.value) for place in ObjectKind}


def ignore_unknown_key(_passed_over: DocumentError) -> None:
    """Ignore unknown keys silently."""


class KeyCheck:
    """Checks the keys of the objects of one document."""

    def __init__(self, on_unknown_key: OnUnknownKey) -> None:
        """``on_unknown_key`` is called for each unknown key, once for each kind of object."""
        self._on_unknown_key = on_unknown_key
        self._reported: set[tuple[ObjectKind, str]] = set()

    def check(self, place: ObjectKind, keys: Collection[str], owner: Callable[[str], Path]) -> None:
        """Check ``keys``; ``owner`` gives the path of the object that has a given one.

        Raises
        ------
        DocumentError
            For a misspelt key.
        """
        if _EXPECTED[place].issuperset(keys):
            return
        for key in sorted(set(keys) - _EXPECTED[place]):
            if key.startswith(OWN_PREFIX) or (place, key) in self._reported:
                continue
            path = (*owner(key), key)
            near = _meant(place, key)
            if near is not None:
                raise DocumentError(f'unknown key; did you mean "{near}"? ({OWN})', path=path)
            self._reported.add((place, key))
            self._on_unknown_key(DocumentError(f"unknown key, ignored ({OWN})", path=path))


def first_with(key: str, values: Sequence[Mapping[str, Any]]) -> int:
    """The position of the first of ``values`` that has ``key``."""
    return next(at for at, value in enumerate(values) if key in value)


def _meant(place: ObjectKind, key: str) -> str | None:
    """The known key that ``key`` most likely misspells, or None."""
    plain = {_plain(known): known for known in place.value}
    near = get_close_matches(_plain(key), plain, n=1, cutoff=NEAR_SHARE_MIN)
    return plain[near[0]] if near else None


def _plain(key: str) -> str:
    """The key without case and word separators."""
    return "".join(filter(str.isalnum, key.lower()))
