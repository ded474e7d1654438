"""Each rule of the proof that a lock is left behind, broken on purpose, and the program that shows it.

Some things are found in two ways: a block by its code and by the exit method that its owner keeps; a lock acquired on every
path likewise; and the value stack shows the object of a block that is not understood. So these are broken together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from stilltrue.runtime.compat import value_stack
from stilltrue.runtime.waits.holders import held_locks
from stilltrue.runtime.waits.orphaned_locks import balance, proof
from stilltrue.runtime.waits.orphaned_locks.proof import Proof


def _never(*_: Any) -> bool:
    return False


def _nothing(*_: Any) -> tuple[Any, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class Mutant:
    """The replacements, and the seed of a program whose waiter is then reported as stuck although it goes on."""

    replaced: tuple[tuple[Any, str, Callable[..., Any]], ...]
    seed: int


_KEPT = (Proof, "_is_bound", _never)
_UNREAD = (value_stack, "_can_read", _never)
_SURE = (held_locks, "surely_held", _nothing)
MUTANTS = {
    "rule 1: locks that a thread has acquired do not count": Mutant(((Proof, "_may_have_acquired", _never), _SURE), 7),
    "rule 1: a lock is not held after it was acquired": Mutant(((balance, "_held", lambda _: iter(())), _SURE), 7),
    "rules 1, 3: an unknown block is not the lock's": Mutant(((proof, "factories_at", _nothing), _KEPT, _UNREAD), 26),
    "rules 1, 3: suspended generators hold nothing": Mutant(((Proof, "_has_suspended", _never), _KEPT), 90),
    "rule 2: no release refers to the lock": Mutant(((Proof, "_may_mean_it", _never),), 8),
    "rule 3: kept release methods do not count": Mutant((_KEPT,), 24),
}


@contextmanager
def broken(mutant: Mutant) -> Iterator[None]:
    """Break the rule inside the block, and bypass the cache of ``uses_of``."""
    uses_of: Any = balance.uses_of
    with ExitStack() as stack:
        for place, attribute, instead in (*mutant.replaced, (proof, "uses_of", uses_of.__wrapped__)):
            stack.enter_context(mock.patch.object(place, attribute, instead))
        yield
