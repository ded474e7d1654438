"""Keyed gates: locks by key that the application builds from a condition and a set of the keys that are in use.

Rules:

1. A party that waits for a condition in a loop, or in ``wait_for``, while its key is in a set goes on only once the key has
   been removed, if the test then keeps it waiting, whatever else holds. The wait is for the party that has added the key.
2. A function holds a key from ``add`` until ``remove`` or ``discard`` of the same variable, which it does not set meanwhile.
   Its bytecode shows whether a frame is between the two.
3. The methods of the class only add and remove keys, test for one, and ask for the number of keys. If one does anything else
   with the set, such as to clear it or to pass it on, or if anything else refers to the set, no holder is known.
4. A party that may remove a key without having added it is a way out: one that can reach the object and whose code mentions
   such a method or the set. A server's method that only adds keys and then removes them lets nobody else go on. If there is
   such a method, a party does not wait for itself.
5. Keys are compared without running code of the application: texts, integers, bytes, and tuples of these.
"""

from __future__ import annotations

import dis
import functools
import sys
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.origins import is_application, is_own_code
from stilltrue.runtime.look.code.attributes import UNKNOWN, attribute_of
from stilltrue.runtime.look.code.names import ATTRIBUTES, words_in
from stilltrue.runtime.own_ref import OwnRef
from stilltrue.runtime.waits.holders.delegates import call_at
from stilltrue.runtime.waits.holders.gates.gate_tests import Positive, keeps_waiting
from stilltrue.runtime.waits.holders.gates.gates import (
    PLACES,
    Gate,
    codes_in,
    condition_at,
    is_of_application,
    swallows_nothing,
    test_of,
)
from stilltrue.runtime.waits.holders.gates.own_shares import COMPUTING
from stilltrue.runtime.waits.holders.try_finally import dropped_after
from stilltrue.runtime.waits.holders.with_blocks import Expression, instructions_of, operand_before
from stilltrue.runtime.waits.orphaned_locks.balance import balance_of
from stilltrue.runtime.waits.orphaned_locks.census import codes_within
from stilltrue.runtime.waits.orphaned_locks.lock_effects import ACQUIRES, RELEASES
from stilltrue.runtime.waits.wait import CallStack, ProcessView, Resolver, SeenWait

_EFFECTS = {"add": ACQUIRES, "remove": RELEASES, "discard": RELEASES}
_STORES = frozenset({"STORE_ATTR", "DELETE_ATTR"})
_WAYS, _TRUTHS = ("", "_FORWARD", "_BACKWARD"), ("TRUE", "FALSE")
_TESTS = frozenset(
    {"CONTAINS_OP", "TO_BOOL", "UNARY_NOT", *(f"POP_JUMP{way}_IF_{which}" for way in _WAYS for which in _TRUTHS)}
)
_REFERENCES = 3
"""The references to a set that only its owner has: one from that, one from a variable of ours, one from ``getrefcount``."""
_KEYS_MAX, _GATES_MAX = 10_000, 4_096
"""How many keys of a set are read, and how many gates are kept: several times as many as a cut reads tasks."""


@dataclass(frozen=True, slots=True)
class _Use:
    """How a code object uses a set that is an attribute of its first parameter.

    ``key``: the variable that it adds or removes (empty: none). ``sure``: the offsets at which it has surely added that and not
    yet removed it. ``unowned``: whether it may remove what it has not added.
    """

    key: str = ""
    sure: frozenset[int] = frozenset()
    unowned: bool = False


# -- how code uses sets (rules 2 and 3) ------------------------------------------------------------------------------------


@cached_by_code
def _uses(code: CodeType) -> Mapping[str, _Use | None]:
    """By attribute, the use of a set; None if it may be used in another way."""
    if not is_application(code):
        return {}
    every = instructions_of(code)
    first = code.co_varnames[0] if code.co_argcount else ""
    mentions: dict[str, list[int]] = {}
    for index, one in enumerate(every):
        if one.opname in ATTRIBUTES or one.opname in _STORES:
            mentions.setdefault(str(one.argval), []).append(index)
    return {name: _use(code, every, first, name, those) for name, those in mentions.items()}


def _use(code: CodeType, every: Sequence[dis.Instruction], first: str, attribute: str, mentions: Sequence[int]) -> _Use | None:
    effects: dict[int, str] = {}
    keys: dict[str, None] = {}
    owner: Expression = (("name", first), ("attribute", attribute))
    for index in mentions:
        after = every[index + 1] if every[index].opname in ATTRIBUTES and index + 1 < len(every) else None
        if after is None:
            return None
        if after.opname in _TESTS or _is_length(every, index):
            continue
        effect = _EFFECTS.get(str(after.argval)) if after.opname in ATTRIBUTES else None
        call = next((at for at in range(index, len(every)) if every[at].opname == "CALL"), None)
        made = None if effect is None or call is None else call_at(every, call)
        done = None if made is None or call is None else dropped_after(every, call)
        if effect is None or made is None or done is None or made.mention != index + 1 or made.receiver != owner:
            return None
        if done[1] or len(made.arguments) != 1 or len(made.arguments[0]) != 1 or made.arguments[0][0][0] != "name":
            return None
        keys[str(made.arguments[0][0][1])] = None
        effects[done[0] if effect == ACQUIRES else index + 1] = effect
    if len(keys) != 1:
        return _Use() if not keys else None
    key = next(iter(keys))
    if key not in code.co_varnames or any(_sets(one, key) for within in codes_within(code) for one in instructions_of(within)):
        return None
    balance = balance_of(code, effects, (owner, (("name", key),)), swallowed=False)
    adds = ACQUIRES in effects.values()
    sure = balance.sure if adds and balance.sure is not None and not balance.unowned else frozenset[int]()
    return _Use(key, sure, RELEASES in effects.values() and (balance.unowned or not adds))


def _sets(one: dis.Instruction, variable: str) -> bool:
    """Whether an instruction sets a variable in a way that :func:`balance_of` does not follow: from within, or with another."""
    kind = one.opname
    return kind in ("STORE_DEREF", "DELETE_DEREF", "STORE_FAST_STORE_FAST", "STORE_FAST_LOAD_FAST") and variable in (
        one.argval if type(one.argval) is tuple else (one.argval,)
    )


def _is_length(every: Sequence[dis.Instruction], index: int) -> bool:
    """Whether an attribute is only read to ask for its length."""
    call = next((at for at in range(index, min(index + 4, len(every))) if every[at].opname == "CALL"), None)
    made = None if call is None else call_at(every, call)
    return made is not None and not made.receiver and made.name == "len" and len(made.arguments) == 1


@cached_by_code
def may_hold_key(code: CodeType) -> bool:
    """Whether a frame of this code may have added a key that it will remove."""
    return any(one is not None and one.sure for one in _uses(code).values())


def _is_used_otherwise(kind: type, attribute: str) -> bool:
    """Whether a method of a class uses the set in a way that is not understood (rule 3)."""
    return any(_uses(code).get(attribute, _Use()) is None for code in codes_in(kind))


def _removing(kind: type, attribute: str) -> frozenset[str]:
    """The methods that may remove a key which they have not added."""
    uses = ((code.co_name, _uses(code).get(attribute)) for code in codes_in(kind))
    return frozenset(name for name, use in uses if use is not None and use.unowned)


# -- keys (rule 5) ---------------------------------------------------------------------------------------------------------

_gates: OrderedDict[tuple[int, str], Gate] = OrderedDict()
"""The gates of keys that were last asked for."""


def _gate_of(owner: Any, attribute: str, key: str) -> Gate | None:
    """The unique gate of a key; None if the owner of the set does not support weak references."""
    name = f"{attribute}[{key}]"
    known = _gates.get((id(owner), name))
    if known is None or known.owner() is not owner:
        try:
            known = Gate(OwnRef(owner), name)
        except TypeError:
            return None
        _gates[id(owner), name] = known
        if len(_gates) > _GATES_MAX:
            _gates.popitem(last=False)
    return known


def _written(key: Any) -> str | None:
    """A key as text, the same for equal keys and for no others; None for keys that cannot be compared without running code."""
    kind = type(key)
    if kind in (int, bool):
        return repr(int(key))
    if kind in (str, bytes, type(None)):
        return repr(key)
    if issubclass(kind, tuple) and kind.__eq__ is tuple.__eq__:
        parts = [_written(one) for one in tuple.__iter__(key)]
        return None if None in parts else f"({','.join(map(str, parts))},)"
    return None


def _has(owner: Any, attribute: str, key: str, view: ProcessView) -> bool:
    """Whether the set has this key, and nothing else refers to the set."""
    keys = attribute_of(owner, attribute)
    if type(keys) is not set or len(keys) > _KEYS_MAX or sys.getrefcount(keys) > _REFERENCES:
        return False
    return key in view.cached((__name__, id(keys)), functools.partial(_all_written, keys.copy()))


def _all_written(keys: set[Any]) -> frozenset[str | None]:
    return frozenset(map(_written, keys))


# -- holding and waiting (rules 1 and 2) -----------------------------------------------------------------------------------


def keys_held_in(frame: FrameType) -> Iterator[tuple[Gate, frozenset[str]]]:
    """The gates of the keys that a frame has added and will remove, each with the methods that may remove them otherwise."""
    code = frame.f_code
    if not may_hold_key(code):
        return
    names = variables_of(frame)
    owner = names.get(code.co_varnames[0], UNKNOWN)
    if owner is UNKNOWN or not swallows_nothing(code, owner, names):
        return
    for attribute, use in _uses(code).items():
        key = _written(names.get(use.key, UNKNOWN)) if use is not None and frame.f_lasti in use.sure else None
        gate = None if key is None else _gate_of(owner, attribute, key)
        if gate is not None:
            yield gate, _removing(type(owner), attribute)


def _read(stack: CallStack, at: int, view: ProcessView) -> SeenWait | None:
    condition = condition_at(stack, at)
    test = None if condition is None else test_of(stack, condition)
    if test is None:
        return None
    for owned_by, attribute, named in _tests_in(test.code):
        owner, key = test.names.get(owned_by, UNKNOWN), _written(test.names.get(named, UNKNOWN))
        if key is None or not is_of_application(type(owner)) or not _has(owner, attribute, key, view):
            continue
        keys = frozenset({named})
        if not keeps_waiting(test.code, test.begins, test.ends, owned_by, attribute, Positive.HAS_KEY, keys):
            continue
        gate = _gate_of(owner, attribute, key)
        holders = () if gate is None else view.inside(gate)
        by = _removing(type(owner), attribute)
        if len(holders) != 1 or _is_used_otherwise(type(owner), attribute) or (by and stack.who in holders):
            continue
        return SeenWait(
            on=condition if stack.task is None else stack.future,
            enders=holders,
            what="a lock of the application held by {}",
            ended_through=(owner,),
            ending_names=by | {attribute},
            has_own_share=functools.partial(_has_own_key, attribute=attribute) if not by else None,
        )
    return None


@cached_by_code
def _tests_in(code: CodeType) -> tuple[tuple[str, str, str], ...]:
    """What code tests for keys: each an owner's variable, the attribute of the set, and the key's variable."""
    every = instructions_of(code)
    found = []
    for index, one in enumerate(every):
        within = operand_before(every, index) if one.opname == "CONTAINS_OP" else None
        key = None if within is None else operand_before(every, within[1])
        if within is None or key is None or [kind for kind, _ in within[0]] != ["name", "attribute"] or len(key[0]) != 1:
            continue
        if key[0][0][0] == "name":
            found.append((str(within[0][0][1]), str(within[0][1][1]), str(key[0][0][1])))
    return tuple(dict.fromkeys(found))


def _has_own_key(codes: Sequence[CodeType], attribute: str) -> bool:
    """Whether code only removes keys that it has added itself (rule 4)."""
    every = dict.fromkeys(code for one in codes for code in codes_within(one))
    for code in every:
        use = _uses(code).get(attribute, _Use())
        if use is None or use.unowned or (is_own_code(code) and not COMPUTING.isdisjoint(words_in(code))):
            return False
    return True


RESOLVERS = (Resolver(PLACES, _read),)
