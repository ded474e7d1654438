"""The types of a cure: an operator's request to abort the waits of some parties, and its outcome for each of them."""

from __future__ import annotations

from dataclasses import dataclass

from stilltrue.model import PartyName
from stilltrue.protocol.requests.look import Suspect


@dataclass(frozen=True, slots=True, kw_only=True)
class CureRequest:
    """Abort what ``victims`` wait for, if they are still in the very same waits. ``incident``: the id to tell the callers."""

    number: int
    incident: str
    victims: tuple[Suspect, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartyCured:
    """The outcome for one victim: whether anything was aborted, and what was done, or why nothing was."""

    party: PartyName
    aborted: bool
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cured:
    """A process's answer to the :class:`CureRequest` with the same number."""

    number: int
    parties: tuple[PartyCured, ...] = ()
