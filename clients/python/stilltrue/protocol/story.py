"""A bounded log of a recorder's events, from which ``story`` reconstructs what happened to one call or party.

When two reports contradict each other, the stories of the call at both ends show which event broke which rule.
"""

from __future__ import annotations

from collections import deque

from stilltrue.model import CallNumber, PartyName, SnapshotId
from stilltrue.protocol.books.ledger import ClientCall, ServerCall

Entry = tuple[int, SnapshotId, str, object]
"""The number of events so far, the colour, what happened, and its subject."""


class EventLog:
    """The last ``entries_max`` events."""

    __slots__ = ("append", "entries")

    def __init__(self, entries_max: int) -> None:
        self.entries: deque[Entry] = deque(maxlen=entries_max)
        self.append = self.entries.append

    def story(self, of: CallNumber | PartyName) -> list[str]:
        """The remembered events of the call made with this number, or of this party, and all cuts; one line each."""
        return [
            f"#{count} colour {colour}: {what}{_subject(subject)}"
            for count, colour, what, subject in self.entries
            if subject is None or of in _names(subject)
        ]


def _names(subject: object) -> tuple[object, ...]:
    if isinstance(subject, ClientCall):
        return subject.number, subject.party
    if isinstance(subject, ServerCall):
        return (subject.party,)
    return (subject,)


def _subject(subject: object) -> str:
    match subject:
        case None:
            return ""
        case ClientCall(number=number, method=method, party=party):
            return f" call {number} of {method} by {party or 'an unknown party'}"
        case ServerCall(number=number, method=method, caller=caller, party=party):
            return f" {party}, call {number} of {caller.process if caller else 'an unknown caller'} to {method}"
        case _:
            return f" {subject}"
