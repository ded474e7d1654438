"""Finds environment variables that are meant as settings and misspelt: such a setting would otherwise be ignored in silence.

1. Only names that begin like ours count, and only if they are near a setting's name, or one of the two is the other's beginning
   (``STILLTRUE_SERVICE_NAME``, ``STILLTRUE_TOKEN``): programs may have variables of their own.
2. A name is not misspelt if the setting that it is near is set as well.
3. The variables that Kubernetes makes for a Service called ``stilltrue`` do not count.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from difflib import get_close_matches

_PREFIX = "STILLTRUE_"
_BEGINNING = re.compile(r"_?STIL", re.IGNORECASE)
_OF_KUBERNETES = re.compile(r".*_(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT(_\d+_(TCP|UDP|SCTP)(_.+)?)?)")
_NEAR = 0.85
"""How much of two names must be equal (difflib's ratio)."""
_NEAR_WHOLE = 0.9
"""The same where the prefix, too, is misspelt."""


def misspelt(names: Iterable[str], known: Collection[str], others: Collection[str] = ()) -> Iterator[tuple[str, str]]:
    """Each of ``names`` that is probably a misspelt one of ``known``, with that one. ``others`` are names with another use."""
    given = sorted(names)
    for name in given:
        if not _BEGINNING.match(name) or name in known or name in others or _OF_KUBERNETES.fullmatch(name):
            continue
        meant = _meant(name.upper(), known)
        if meant and meant not in given:
            yield name, meant


def _meant(name: str, known: Collection[str]) -> str:
    if name in known:
        return name
    if not name.startswith(_PREFIX):
        return next(iter(get_close_matches(name, known, n=1, cutoff=_NEAR_WHOLE)), "")
    bare = {each.removeprefix(_PREFIX): each for each in sorted(known) if each.startswith(_PREFIX)}
    word = name.removeprefix(_PREFIX)
    near = get_close_matches(word, bare, n=1, cutoff=_NEAR) or [
        each for each in bare if each.startswith(f"{word}_") or word.startswith(f"{each}_")
    ]
    return bare[near[0]] if near else ""
