"""The identity of a deadlock: the same core has the same id in every snapshot, and everywhere."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from stilltrue.model import PartyName


def canonical_core_id(core: Iterable[PartyName]) -> str:
    """Twelve hexadecimal digits that depend on the set of parties in ``core`` alone (SHA-256 of the sorted names)."""
    names = "\n".join(sorted(set(core)))
    return hashlib.sha256(names.encode("utf-8", "surrogatepass")).hexdigest()[:12]
