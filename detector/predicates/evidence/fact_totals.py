"""Sums a numeric fact over the processes and the messages in transit of one snapshot."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from detector.core.snapshot import Snapshot
from stilltrue.model import UNKNOWN_FACT, Fact, Facts, ProcessName


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """The total of one fact in a snapshot, and its distribution.

    Attributes
    ----------
    total : the sum over all reporting processes and all messages in transit; a missing fact counts as 0.
    holders : the processes that declare more than zero, sorted.
    carried : the amount in transit.
    declared : whether any process or message declares the fact.
    unknown : processes that, or whose messages, have an unknown amount (``UNKNOWN_FACT``), sorted.
    odd : processes whose fact is not an amount (a string, a negative number, NaN), sorted.
    """

    total: float
    holders: tuple[ProcessName, ...]
    carried: float
    declared: bool
    unknown: tuple[ProcessName, ...]
    odd: tuple[ProcessName, ...]


def amount_of(snapshot: Snapshot, fact: str) -> Amount:
    """Sum ``fact`` over ``snapshot``. ``True`` counts as 1. Facts of missing members are stale and ignored."""
    own = {name: state.facts for name, state in snapshot.present().items() if fact in state.facts}
    travelling = [(message.source, message.facts) for message in snapshot.in_transit if fact in message.facts]
    carried = total_of((facts[fact] for _, facts in travelling))
    others = [(name, facts[fact]) for name, facts in (*own.items(), *travelling) if not _is_amount(facts, fact)]
    return Amount(
        total=carried + total_of(facts[fact] for facts in own.values()),
        holders=tuple(name for name, facts in own.items() if _is_amount(facts, fact) and facts[fact]),
        carried=carried,
        declared=bool(own or travelling),
        unknown=tuple(sorted({name for name, value in others if value == UNKNOWN_FACT})),
        odd=tuple(sorted({name for name, value in others if value != UNKNOWN_FACT})),
    )


def total_of(values: Iterable[Fact]) -> float:
    """The sum of the finite numbers among ``values``: exact for integers, correctly rounded otherwise."""
    numbers = [value for value in values if isinstance(value, (int, float)) and math.isfinite(value)]
    return sum(numbers) if all(isinstance(value, int) for value in numbers) else math.fsum(numbers)


def _is_amount(facts: Facts, fact: str) -> bool:
    value = facts[fact]
    return isinstance(value, (int, float)) and math.isfinite(value) and value >= 0
