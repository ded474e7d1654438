"""The conditions of loops: which flag a jump tests, as far as the bytecode shows.

A condition is understood if it only reads names (``running``, ``self.running``, ``state["stop"]``, ``phase == DONE``) or calls
one method on such a chain (``stop.is_set()``, ``stop.wait(1)``, ``thread.is_alive()``). Any other may change by itself.
"""

from __future__ import annotations

import dis
import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import CodeType
from typing import Any

from stilltrue.runtime.bytecode.instructions import instructions
from stilltrue.runtime.look.code.names import ATTRIBUTES, ITEMS, VARIABLES, Receiver, chain_before

_JUMPS = ("POP_JUMP", "JUMP_IF")
_PASSED = frozenset(
    {"TO_BOOL", "UNARY_NOT", "CACHE", "NOP", "NOT_TAKEN", "COPY", "SWAP", "PUSH_NULL", "RESUME", "COPY_FREE_VARS"}
)
_CALLS = frozenset({"CALL", "CALL_METHOD", "CALL_FUNCTION", "CALL_KW", "CALL_FUNCTION_KW"})
_COMPARES = frozenset({"COMPARE_OP", "IS_OP"})
_CONSTANTS = frozenset({"LOAD_CONST", "LOAD_SMALL_INT", "LOAD_CONST_IMMORTAL"})
_RETURNS = frozenset({"RETURN_VALUE"})
_READING = (
    ATTRIBUTES | VARIABLES | _PASSED | _CALLS | _COMPARES | _CONSTANTS | _RETURNS | {"PRECALL", "BINARY_SUBSCR", "BINARY_OP"}
)
_CODES_MAX = 4_096


@dataclass(frozen=True, slots=True)
class Condition:
    """The test of a jump: the values of ``chains``, or the result of ``method`` on the only chain.

    ``item``: the value is the chain's item with the key ``constant``. ``operator``: compares two values, one of which may be
    ``constant``. ``negated``: the whole is negated by ``not``. ``when``: the result on which the jump is taken.
    """

    chains: tuple[Receiver, ...]
    method: str = ""
    item: bool = False
    operator: str = ""
    constant: Any = None
    negated: bool = False
    when: bool = True

    @property
    def reads(self) -> frozenset[str]:
        """The names that must be stored for it to change."""
        names = frozenset(name for chain in self.chains for name in chain)
        return names | {ITEMS} if self.item else names


def condition_at(every: Sequence[dis.Instruction], index: int, after: int) -> Condition | None:
    """The condition for the jump at ``index`` to lead to ``after``; None if it may change by itself or is not a jump."""
    one = every[index]
    if not one.opname.startswith(_JUMPS) or one.is_jump_target:
        return None
    found = _value_before(every, index)
    if found is not None and one.opname.endswith("NONE"):
        found = None if found.operator or found.method else replace(found, operator="is")
    jumps = after != index + 1
    return None if found is None else replace(found, when=jumps is not ("FALSE" in one.opname or "NOT_NONE" in one.opname))


@functools.lru_cache(maxsize=_CODES_MAX)
def returned_by(code: CodeType) -> Condition | None:
    """The value of a function that only reads a flag (``return self._stop.is_set()``); None for any other function."""
    every = list(instructions(code))
    if not every or every[-1].opname not in _RETURNS or any(one.opname not in _READING for one in every):
        return None
    if sum(one.opname in _RETURNS for one in every) != 1 or sum(one.opname in _CALLS for one in every) > 1:
        return None
    return _value_before(every, len(every) - 1)


def _value_before(every: Sequence[dis.Instruction], index: int) -> Condition | None:
    """The value left by the instructions just before ``index``."""
    first = _skip(every, index - 1)
    negated = sum(one.opname == "UNARY_NOT" for one in every[first + 1 : index]) % 2 == 1
    found = _plain_value(every, first)
    return replace(found, negated=True) if found is not None and negated else found


def _plain_value(every: Sequence[dis.Instruction], index: int) -> Condition | None:
    one = every[index]
    if one.is_jump_target and one.opname not in VARIABLES:  # one of several values
        return None
    if one.opname in _CALLS:
        return _call(every, index)
    if one.opname in _COMPARES:
        return _comparison(every, index)
    if one.opname == "BINARY_SUBSCR" or (one.opname == "BINARY_OP" and one.argrepr == "[]"):
        key = index - 1
        chain = chain_before(every, key) if every[key].opname in _CONSTANTS else ()
        return Condition((chain,), item=True, constant=every[key].argval) if chain else None
    chain = chain_before(every, index + 1)
    return Condition((chain,)) if chain else None


def _call(every: Sequence[dis.Instruction], index: int) -> Condition | None:
    """A method call with any arguments: its position starts where the chain starts."""
    place = getattr(every[index], "positions", None)
    if place is None or place.lineno is None:
        return None
    for before in range(index - 1, -1, -1):
        one = every[before]
        here = getattr(one, "positions", None)
        if here is None or (here.lineno, here.col_offset) < (place.lineno, place.col_offset):
            return None
        if one.is_jump_target and one.opname not in VARIABLES:
            return None
        if one.opname in ATTRIBUTES and (here.lineno, here.col_offset) == (place.lineno, place.col_offset):
            chain = chain_before(every, before)
            return Condition((chain,), method=str(one.argval)) if chain else None
    return None


def _comparison(every: Sequence[dis.Instruction], index: int) -> Condition | None:
    """A comparison of two chains, or of a chain with a constant on the right."""
    one = every[index]
    operator = ("is not" if one.arg else "is") if one.opname == "IS_OP" else one.argrepr.removeprefix("bool(").rstrip(")")
    if every[index - 1].opname in _CONSTANTS:
        constant = every[index - 1].argval
        chain = chain_before(every, index - 1)
        return Condition((chain,), operator=operator, constant=constant) if chain and is_plain(constant) else None
    right = chain_before(every, index)
    left = chain_before(every, index - len(right)) if right else ()
    return Condition((left, right), operator=operator) if left else None


def is_plain(value: object) -> bool:
    """Whether ``value`` is immutable and its comparison runs no application code."""
    return value is None or type(value) in (bool, int, float, str, bytes)


def _skip(every: Sequence[dis.Instruction], index: int) -> int:
    while index > 0 and every[index].opname in _PASSED and not every[index].is_jump_target:
        index -= 1
    return index
