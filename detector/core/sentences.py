"""Reads the sentences of answers: what each is about, and where its remarks begin.

:mod:`detector.predicates.evidence.explanation` and :func:`detector.core.membership_doubt.with_remark` write them.
"""

from __future__ import annotations

import re

from stilltrue.model import PartyName

NO_MEMBERS = "no process is connected"
"""The text of an answer without members."""
NO_LOOK_YET = "did not answer within"
"""Begins the reason for doubt about parties whose process has not answered the second look in time."""
_WAITING = re.compile(" has waited | waits for ")


def waiter_in(sentence: str) -> PartyName:
    """The party whose wait a sentence explains; the whole sentence if it is about something else."""
    return PartyName(_WAITING.split(sentence, maxsplit=1)[0])


def remarks_of(text: str) -> list[str]:
    """The parts of a witness text: its sentence, then each remark after a semicolon.

    A semicolon in parentheses, and one before the rest of an enumeration ("not yet: ...", "and 1 more"), separates nothing.

    Examples
    --------
    >>> remarks_of("no party was waiting (a; b); but 2 calls have not moved; covers 1 of 2 members")
    ['no party was waiting (a; b)', 'but 2 calls have not moved', 'covers 1 of 2 members']
    >>> remarks_of("a may be deadlocked; and 1 more; gathering, 0 of 1 back; not yet: b")
    ['a may be deadlocked; and 1 more', 'gathering, 0 of 1 back; not yet: b']
    """
    first, *others = text.split("; ")
    parts = [first]
    for piece in others:
        if parts[-1].count("(") > parts[-1].count(")") or piece.startswith(("not yet: ", "and ")):
            parts[-1] += f"; {piece}"
        else:
            parts.append(piece)
    return parts
