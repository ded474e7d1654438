"""Formats counts with their noun: ``1 member``, ``both processes``."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str = "") -> str:
    """``number`` and its noun; ``plural`` is needed when it is not the noun plus an s.

    Examples
    --------
    >>> [counted(1, "party", "parties"), counted(2, "member")]
    ['1 party', '2 members']
    """
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def all_of(number: int, noun: str, plural: str = "") -> str:
    """All of the ``number`` things that there are; the verb for one of them is singular.

    Examples
    --------
    >>> [all_of(1, "process"), all_of(2, "process", "processes"), all_of(3, "process", "processes")]
    ['the only process', 'both processes', 'all 3 processes']
    """
    return f"the only {noun}" if number == 1 else f"{all_of_them(number)} {plural or noun + 's'}"


def all_of_them(number: int) -> str:
    """All of the ``number`` things that have just been named.

    Examples
    --------
    >>> [all_of_them(1), all_of_them(2), all_of_them(3)]
    ['it', 'both', 'all 3']
    """
    return {1: "it", 2: "both"}.get(number, f"all {number}")
