"""What the sentences of an explanation are about (:mod:`detector.predicates.evidence.explanation` writes them)."""

from __future__ import annotations

import re

from stilltrue.model import PartyName

_WAITING = re.compile(" has waited | waits for ")


def waiter_in(sentence: str) -> PartyName:
    """The party whose wait a sentence explains; the whole sentence if it is about something else."""
    return PartyName(_WAITING.split(sentence, maxsplit=1)[0])
