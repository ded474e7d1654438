"""What the instructions of a function do to locks: rules 1 and 2 of :mod:`~stilltrue.runtime.waits.orphaned_locks.balance`."""

from __future__ import annotations

import dis
from collections.abc import Iterator, Sequence

from stilltrue.runtime.look.code.names import ATTRIBUTES
from stilltrue.runtime.waits.holders.try_finally import called_and_dropped, dropped_after
from stilltrue.runtime.waits.holders.with_blocks import Expression, expression_before, operand_before, skip_back

RELEASING = frozenset({"release", "release_lock", "__exit__", "__aexit__", "_release_save"})
ACQUIRES, MAY_ACQUIRE, RELEASES = "acquires", "may acquire", "releases"
TRIES = "tries"
"""The effect of the jump that tests the result of ``acquire()``."""
KEEPS = "keeps "
"""The effect of keeping the result in a variable, whose name follows."""
IDLE = frozenset({"CACHE", "NOP", "PRECALL", "KW_NAMES", "TO_BOOL", "EXTENDED_ARG"})
_ARGUMENTS = IDLE | {
    *("LOAD_CONST", "LOAD_SMALL_INT", "LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_LOAD_FAST", "LOAD_GLOBAL", "LOAD_DEREF"),
    *(
        "LOAD_NAME",
        "LOAD_ATTR",
        "LOAD_METHOD",
        "UNARY_NEGATIVE",
        "BINARY_OP",
        "BINARY_SUBSCR",
        "COMPARE_OP",
        "PUSH_NULL",
        "COPY",
        "SWAP",
    ),
    *("FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC", "CONVERT_VALUE", "BUILD_STRING"),
}
_FINISHES = frozenset({"CALL", "CALL_KW"})
KEEPS_AND_LOADS = "STORE_FAST_LOAD_FAST"


def effects_in(every: Sequence[dis.Instruction]) -> Iterator[tuple[int, Expression, str]]:
    """The instructions that acquire or release an expression (rules 1 and 2). An empty effect may happen at any later time."""
    for index, one in enumerate(every):
        if one.opname not in ATTRIBUTES or (one.argval != "acquire" and one.argval not in RELEASING):
            continue
        expression = expression_before(every, index)
        if one.argval == "acquire":
            at, effect = _acquires_at(every, index) if expression else (index, MAY_ACQUIRE)
            yield at, expression, effect
        else:
            done = called_and_dropped(every, index) is not None or _is_left_to_stack(every, index)
            yield index, expression, RELEASES if done and expression and one.argval == "release" else ""


def _is_left_to_stack(every: Sequence[dis.Instruction], attribute: int) -> bool:
    """Whether the method loaded at ``attribute`` is the only argument of a method called ``callback``."""
    operand, call = operand_before(every, attribute), call_after(every, attribute)
    if operand is None or call is None or operand[1] == 0 or every[call].opname != "CALL" or every[call].arg != 1:
        return False
    called = every[skip_back(every, operand[1] - 1)]
    between = [one for one in every[attribute + 1 : call] if one.opname not in IDLE]
    return called.opname in ATTRIBUTES and called.argval == "callback" and not between


def _acquires_at(every: Sequence[dis.Instruction], attribute: int) -> tuple[int, str]:
    """Where a call of ``acquire()`` has its effect, and which (rule 1)."""
    dropped = dropped_at(every, attribute)
    if dropped is not None:
        return dropped[0], ACQUIRES
    call = call_after(every, attribute)
    return (None if call is None else result_used(every, call)) or (attribute, MAY_ACQUIRE)


def result_used(every: Sequence[dis.Instruction], call: int) -> tuple[int, str] | None:
    """Where the result of a call that acquires a lock is tested or kept in a variable, with that effect; None: neither."""
    at = _after_idle(every, call)
    if at is None:
        return None
    if is_test(every[at]):
        return at, TRIES
    if every[at].opname == "COPY" and every[at].arg == 1:  # of an assignment expression
        at = _after_idle(every, at) or at
    one = every[at]
    if one.opname == KEEPS_AND_LOADS:
        return at, f"{KEEPS}{one.argval[0]}"
    return (at, f"{KEEPS}{one.argval}") if one.opname == "STORE_FAST" else None


def dropped_at(every: Sequence[dis.Instruction], attribute: int) -> tuple[int, bool] | None:
    """As :func:`called_and_dropped`, also as the argument of an awaited ``asyncio.wait_for``."""
    found = called_and_dropped(every, attribute)
    inner = None if found is not None else call_after(every, attribute)
    operand = operand_before(every, attribute)
    if inner is None or operand is None or every[inner].arg or operand[1] == 0:
        return found
    if every[skip_back(every, operand[1] - 1)].argval != "wait_for":
        return None
    outer = call_after(every, inner)
    dropped = None if outer is None else dropped_after(every, outer)
    return dropped if dropped is not None and dropped[1] else None


def call_after(every: Sequence[dis.Instruction], index: int) -> int | None:
    """The next call, if only simple arguments come before it."""
    for later in range(index + 1, len(every)):
        one = every[later]
        if one.opname in _FINISHES:
            return later
        if one.opname not in _ARGUMENTS or one.is_jump_target:
            return None
    return None


def _after_idle(every: Sequence[dis.Instruction], index: int) -> int | None:
    """The next instruction that does something; None if others may lead there."""
    for later in range(index + 1, len(every)):
        if every[later].is_jump_target:
            return None
        if every[later].opname not in IDLE:
            return later
    return None


def is_test(one: dis.Instruction) -> bool:
    """Whether it is a jump that depends on whether a value is true."""
    return one.opname.startswith("POP_JUMP_") and one.opname.endswith(("IF_TRUE", "IF_FALSE"))
