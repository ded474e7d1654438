"""Formats counts with their noun: ``1 member``, ``2 members``."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str = "") -> str:
    """``number`` and its noun; ``plural`` is needed when it is not the noun plus an s.

    Examples
    --------
    >>> [counted(1, "party", "parties"), counted(2, "member")]
    ['1 party', '2 members']
    """
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
