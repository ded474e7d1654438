"""Whether a party makes progress: by itself, when one of some parties does, or never."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stilltrue.model import PartyName


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress: ``by_itself``, when one of ``parties`` makes progress, or never."""

    by_itself: bool = False
    parties: frozenset[PartyName] = frozenset()

    def __or__(self, other: Progress) -> Progress:
        return Progress(self.by_itself or other.by_itself, self.parties | other.parties)

    def __and__(self, other: Progress) -> Progress:
        """Both must progress. If both depend on parties, one stands for both, so doubt favours a way out."""
        if not self or not other:
            return NEVER
        return other if self.by_itself else self

    def __bool__(self) -> bool:
        return self.by_itself or bool(self.parties)


NEVER = Progress()
BY_ITSELF = Progress(by_itself=True)


def any_of(found: Iterable[Progress]) -> Progress:
    """Progress when one of these progresses."""
    together = NEVER
    for one in found:
        together |= one
    return together
