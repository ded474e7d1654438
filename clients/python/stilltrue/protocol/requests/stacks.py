"""The types of a look at all parties of a process that have not moved for a while: where each of them is."""

from __future__ import annotations

from dataclasses import dataclass

from stilltrue.model import PartyName


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingParty:
    """A party that has not moved for a while.

    ``blocked_in``: what it waits for (empty: unknown). ``held_by``: who can end its wait (empty: unknown). ``stack``: innermost
    frame first, as ``file:line in function``. ``unexplained``: it is unknown what it waits for, or who can end that.
    ``owes_reply``: it serves a call whose reply is due. ``never_idle``: it serves no call, and is in a wait that idle parties
    are not in: for a lock, for an answer. ``reads_stream``: it waits for the next item of a stream, which may pause for as long
    as it likes. ``polls``: it moves, but only to look again and again. The detector is only sent the numbers of the first two.
    """

    party: PartyName
    blocked_in: str = ""
    held_by: tuple[str, ...] = ()
    stack: tuple[str, ...] = ()
    unexplained: bool = False
    owes_reply: bool = False
    never_idle: bool = False
    reads_stream: bool = False
    polls: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StacksFound:
    """A process's answer to the request with this number; ``left_out`` is the number of parties beyond the bound."""

    number: int
    parties: tuple[StandingParty, ...] = ()
    left_out: int = 0
