"""The types of a look at all parties of a process that have not moved for long: what each of them stands in."""

from __future__ import annotations

from dataclasses import dataclass

from stilltrue.model import PartyName


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingParty:
    """A party that has stood in the same place for long.

    ``blocked_in``: what it waits for (empty: unknown). ``held_by``: who can end its wait (empty: unknown). ``stack``: innermost
    frame first.
    """

    party: PartyName
    blocked_in: str = ""
    held_by: tuple[str, ...] = ()
    stack: tuple[str, ...] = ()
    unexplained: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StacksFound:
    """One process's answer to the request of this number; ``left_out`` parties are beyond the bound."""

    number: int
    parties: tuple[StandingParty, ...] = ()
    left_out: int = 0
