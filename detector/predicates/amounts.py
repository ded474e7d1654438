"""Adds up what processes and messages declare about themselves, in a consistent snapshot."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from detector.core.snapshot import Snapshot
from stilltrue.model import Fact, Facts, ProcessName


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """What a snapshot declares of one fact.

    Attributes
    ----------
    total : the sum over all processes that reported and all messages in transit; an absent fact is 0.
    holders : the processes that declare more than nothing, sorted.
    carried : how much is in transit.
    declared : whether anybody declares the fact at all.
    odd : processes whose fact is no amount (a text, a negative number, no number), sorted.
    """

    total: float
    holders: tuple[ProcessName, ...]
    carried: float
    declared: bool
    odd: tuple[ProcessName, ...]


def amount_of(snapshot: Snapshot, fact: str) -> Amount:
    """Sum up ``fact`` over ``snapshot``; true counts 1. What a missing member declared is stale and left out."""
    own = {name: state.facts for name, state in snapshot.present().items() if fact in state.facts}
    travelling = [(message.source, message.facts) for message in snapshot.in_transit if fact in message.facts]
    carried = total_of((facts[fact] for _, facts in travelling))
    odd = {name for name, facts in (*own.items(), *travelling) if not _is_amount(facts, fact)}
    return Amount(
        total=carried + total_of(facts[fact] for facts in own.values()),
        holders=tuple(name for name, facts in own.items() if _is_amount(facts, fact) and facts[fact]),
        carried=carried,
        declared=bool(own or travelling),
        odd=tuple(sorted(odd)),
    )


def total_of(values: Iterable[Fact]) -> float:
    """The sum of the numbers among ``values``: exact for whole numbers, correctly rounded otherwise."""
    numbers = [value for value in values if isinstance(value, (int, float)) and math.isfinite(value)]
    return sum(numbers) if all(isinstance(value, int) for value in numbers) else math.fsum(numbers)


def _is_amount(facts: Facts, fact: str) -> bool:
    value = facts[fact]
    return isinstance(value, (int, float)) and math.isfinite(value) and value >= 0
