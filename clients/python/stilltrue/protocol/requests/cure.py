"""The types of a cure: which parties' calls an operator asks a process to abort, and what became of each."""

from __future__ import annotations

from dataclasses import dataclass

from stilltrue.model import PartyName
from stilltrue.protocol.requests.look import Suspect


@dataclass(frozen=True, slots=True, kw_only=True)
class CureRequest:
    """Abort what ``victims`` wait for, those alone that still are in the very same waits; ``incident`` names it to callers."""

    number: int
    incident: str
    victims: tuple[Suspect, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartyCured:
    """One victim: whether anything of it was aborted, and what was done, or why nothing was."""

    party: PartyName
    aborted: bool
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cured:
    """One process's answer to the request of this number."""

    number: int
    parties: tuple[PartyCured, ...] = ()
