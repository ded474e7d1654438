"""Whether somebody goes on: by himself, when one of some parties does, or never."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stilltrue.model import PartyName


@dataclass(frozen=True, slots=True)
class Progress:
    """Whether somebody goes on: ``by_itself``, or when one of ``parties`` does, or else never."""

    by_itself: bool = False
    parties: frozenset[PartyName] = frozenset()

    def __or__(self, other: Progress) -> Progress:
        return Progress(self.by_itself or other.by_itself, self.parties | other.parties)

    def __and__(self, other: Progress) -> Progress:
        """Both must go on; of two that wait for parties, the one stands for both: doubt is on the side of a way out."""
        if not self or not other:
            return NEVER
        return other if self.by_itself else self

    def __bool__(self) -> bool:
        return self.by_itself or bool(self.parties)


NEVER = Progress()
BY_ITSELF = Progress(by_itself=True)


def any_of(found: Iterable[Progress]) -> Progress:
    """Somebody who goes on when one of these does."""
    together = NEVER
    for one in found:
        together |= one
    return together
