"""Which keys a snapshot document may have: a misspelt one is an error, a stranger's own is passed over and told.

1. The keys of DESIGN.md section 8, and those that `show --format json` adds, are known.
2. An annotation (``ANNOTATIONS``, or any key that begins with ``x-``) says nothing of the snapshot and may stand in any object.
3. Any other key that is nearly a known one is misspelt: an error, for to pass it over could change the answer.
4. What is left is passed over, and whoever reads the document is told.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from enum import Enum
from typing import Any

from detector.core.document.values import DocumentError, Path

OnUnknownKey = Callable[[DocumentError], object]
"""Is told of a key that was passed over: a complaint that is not raised."""

ANNOTATIONS = frozenset({"$schema", "comment", "description", "expect", "id", "meta", "name", "note", "title"})
OWN_PREFIX = "x-"
OWN = 'a key of your own begins with "x-"'
NEAR_SHARE_MIN = 0.78
"""How much of two keys must agree (difflib's ratio) for one to be taken for the other, misspelt."""


class ObjectKind(Enum):
    """The objects of a document, each with the keys that it may have."""

    DOCUMENT = ("begun", "ended", "id", "in_transit", "missing", "previous", "processes", "scope", "waits")
    PROCESS = ("activity", "facts", "labels", "service")
    WAIT = ("among", "deadline", "needs", "number", "since", "uncoloured", "waiter", "what")
    MESSAGE = ("facts", "source", "target", "what")


_EXPECTED = {place: ANNOTATIONS.union(place.value) for place in ObjectKind}


def ignore_unknown_key(_passed_over: DocumentError) -> None:
    """For those who do not want to be told."""


class KeyCheck:
    """Looks at the keys of one document's objects."""

    def __init__(self, on_unknown_key: OnUnknownKey) -> None:
        """``on_unknown_key``: hears of each key that is passed over, once for each kind of object."""
        self._on_unknown_key = on_unknown_key
        self._passed_over: set[tuple[ObjectKind, str]] = set()

    def check(self, place: ObjectKind, keys: Collection[str], owner: Callable[[str], Path]) -> None:
        """Look at ``keys``; ``owner`` gives the path of the object that has one of them.

        Raises
        ------
        DocumentError
            For a misspelt key.
        """
        if _EXPECTED[place].issuperset(keys):
            return
        for key in sorted(set(keys) - _EXPECTED[place]):
            if key.startswith(OWN_PREFIX) or (place, key) in self._passed_over:
                continue
            path = (*owner(key), key)
            near = _meant(place, key)
            if near is not None:
                raise DocumentError(f'unknown key; did you mean "{near}"? ({OWN})', path=path)
            self._passed_over.add((place, key))
            self._on_unknown_key(DocumentError(f"unknown key, passed over ({OWN})", path=path))


def first_with(key: str, values: Sequence[Mapping[str, Any]]) -> int:
    """The position of the first of ``values`` that has ``key``."""
    return next(at for at, value in enumerate(values) if key in value)


def _meant(place: ObjectKind, key: str) -> str | None:
    """The known key that ``key`` is most likely a misspelling of; None when it is nothing like one."""
    plain = {_plain(known): known for known in place.value}
    near = get_close_matches(_plain(key), plain, n=1, cutoff=NEAR_SHARE_MIN)
    return plain[near[0]] if near else None


def _plain(key: str) -> str:
    """The key without what people write differently: case, and what stands between words."""
    return "".join(filter(str.isalnum, key.lower()))
