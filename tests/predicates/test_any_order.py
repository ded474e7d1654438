"""Any order of a document gives the same bytes: verdict, witness, explanation and victims, for every predicate about waits."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from detector.core.document.reader import read_document
from detector.core.predicate import Predicate
from detector.core.verdict import write_verdict
from detector.predicates.deadlock import Deadlock
from detector.predicates.gridlock import Gridlock
from detector.predicates.quiescence import Quiescence

PREDICATES: list[Predicate] = [
    Deadlock(),
    Deadlock(victims="lowest-priority", never=["p1", "p2/*"]),
    Deadlock(victims="least-work"),
    Gridlock(),
    Quiescence(),
]


def shuffled(rng: random.Random, value: Any) -> Any:
    """The document with keys, waits, targets (some repeated) and missing members in another order."""
    if isinstance(value, dict):
        return {key: shuffled(rng, value[key]) for key in rng.sample(list(value), len(value))}
    if isinstance(value, list):
        again = rng.sample(value, rng.randint(0, len(value))) if value and isinstance(value[0], str) else []
        return [shuffled(rng, each) for each in rng.sample([*value, *again], len(value) + len(again))]
    return value


def crowd(rng: random.Random, parties: int) -> dict[str, Any]:
    """Parties of several processes, most of which wait for k of n, some twice, some with deadlines, some uncoloured."""
    names = [f"p{at % 7}/Call#{at}" for at in range(parties)]
    waits = []
    for waiter in rng.sample(names, parties * 9 // 10) + rng.sample(names, parties // 10):
        among = rng.sample(names, rng.choice([1, 1, 2, 3]))
        wait: dict[str, Any] = {"waiter": waiter, "among": among, "needs": rng.randint(1, len(among))}
        wait |= {"since": f"2026-11-20T14:02:{rng.randint(10, 12)}Z"} if rng.random() < 0.5 else {}
        wait |= {"deadline": "2026-11-20T14:03:00Z"} if rng.random() < 0.1 else {}
        wait |= {"number": rng.randint(1, 3)} if rng.random() < 0.5 else {}
        wait |= {"what": "a worker"} if rng.random() < 0.3 else {}
        wait |= {"uncoloured": True} if rng.random() < 0.05 else {}
        waits.append(wait)
    facts = {f"p{at}": {"facts": {"priority": at % 3, "work": at % 2}} for at in range(7)}
    document = {"processes": facts, "waits": waits, "ended": "2026-11-20T14:02:13Z"}
    return document | ({"missing": ["p6"]} if rng.random() < 0.2 else {}) | ({"previous": waits} if rng.random() < 0.5 else {})


def same_bytes(document: dict[str, Any], rng: random.Random) -> None:
    snapshots = [read_document(each) for each in (document, shuffled(rng, document), shuffled(rng, document))]
    for predicate in PREDICATES:
        told = {json.dumps(write_verdict(predicate.evaluate(snapshot))) for snapshot in snapshots}
        assert len(told) == 1, predicate.name


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([4, 8, 12, 40]))
def test_any_order_of_a_document_gives_the_same_bytes(seed: int, parties: int) -> None:
    rng = random.Random(seed)
    same_bytes(crowd(rng, parties), rng)


def test_any_order_of_thousands_of_parties_gives_the_same_bytes() -> None:
    """Large graphs, which need searches in the reduction and approximated victims."""
    rng = random.Random(1)
    document = crowd(rng, 1_500)
    line = [f"q/{at}" for at in rng.sample(range(2_000), 2_000)]
    document["waits"] += [{"waiter": one, "among": [other]} for one, other in pairwise(line)]
    same_bytes(document, rng)
