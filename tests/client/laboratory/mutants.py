"""Each rule of the proof that nobody has a lock any more, broken on purpose, and the program that shows it.

What stands in a block is found twice: by the block, and by what its owner keeps to leave it; so is what was taken on every way,
and what a frame keeps says whose a block is that is not understood. So these are broken together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from stilltrue.runtime.compat import kept_values
from stilltrue.runtime.seen.holders import held
from stilltrue.runtime.seen.left import balance, proof
from stilltrue.runtime.seen.left.proof import Proof


def _never(*_: Any) -> bool:
    return False


def _nothing(*_: Any) -> tuple[Any, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class Mutant:
    """What is replaced, by what; and the seed of a program whose waiter is then called, and goes on."""

    replaced: tuple[tuple[Any, str, Callable[..., Any]], ...]
    seed: int


_KEPT = (Proof, "_is_bound", _never)
_UNREAD = (kept_values, "_can_read", _never)
_SURE = (held, "taken_for_sure", _nothing)
MUTANTS = {
    "rule 1: what a thread has taken does not count": Mutant(((Proof, "_has_taken", _never), _SURE), 7),
    "rule 1: nothing is held after it was taken": Mutant(((balance, "_held", lambda _: iter(())), _SURE), 7),
    "rules 1, 3: a block that is not understood is another's": Mutant(((proof, "made_at", _nothing), _KEPT, _UNREAD), 26),
    "rules 1, 3: suspended generators have nothing": Mutant(((Proof, "_has_suspended", _never), _KEPT), 90),
    "rule 2: nobody means it by what they release": Mutant(((Proof, "_means_it", _never),), 8),
    "rule 3: what is kept to release it does not count": Mutant((_KEPT,), 24),
}


@contextmanager
def broken(mutant: Mutant) -> Iterator[None]:
    """Inside the block the rule is broken; what is known of a code is read anew."""
    uses_of: Any = balance.uses_of
    with ExitStack() as stack:
        for place, attribute, instead in (*mutant.replaced, (proof, "uses_of", uses_of.__wrapped__)):
            stack.enter_context(mock.patch.object(place, attribute, instead))
        yield
