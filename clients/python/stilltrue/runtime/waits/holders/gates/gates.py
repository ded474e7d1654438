"""Gates: locks that the application builds from a condition and a counter, flag or owner, such as readers-writer locks.

Rules:

1. A party that waits for a condition in a loop, or in ``wait_for``, goes on only once the test there has changed. A positive
   attribute (a count of at least one, ``True``, or an owner: anything but ``None``) is a gate if the test then keeps every
   party waiting, whatever else holds. The wait is for the parties that have raised the gate.
2. A function raises an attribute of its object by ``+= 1`` or ``= True``, and lowers it by ``-= 1`` or ``= False``. It also
   raises one by setting an owner after waiting for the condition, and lowers it by ``= None``. Its bytecode shows whether a
   frame is between the two. It raises the gate for its caller if it has raised it wherever it returns and does not lower it.
3. All parties that have raised it must be known: as many as the count, or one for a flag or an owner. An owner that counts how
   often it has entered (``self.count += 1`` beside ``self.owner = me``) has raised that count.
4. A party that may lower it without having raised it is a way out: one that can reach the object and whose code mentions such a
   method or the attribute. A method of a server that only lowers a count which it has raised itself lets nobody else go on.
5. It is not a lock if other parties are meant to lower it: if a method sets it to another value (``= 0``) or in another way, if
   the waiting function has raised it before, or if the waiter itself has raised the flag or is the owner and there is
   a method as in rule 4.
6. The ``with`` blocks of such code are only for locks and conditions, which do not swallow exceptions.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, FrameType, FunctionType
from typing import Any

from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.origins import is_application
from stilltrue.runtime.look.code.attributes import UNKNOWN, attribute_of
from stilltrue.runtime.look.code.names import VARIABLES
from stilltrue.runtime.own_ref import OwnRef
from stilltrue.runtime.waits.holders.gates.gate_tests import Positive, keeps_waiting, wait_before
from stilltrue.runtime.waits.holders.gates.own_shares import has_own_share
from stilltrue.runtime.waits.holders.with_blocks import expression_before, instructions_of, value_of
from stilltrue.runtime.waits.orphaned_locks.balance import balance_of, leaves_with
from stilltrue.runtime.waits.orphaned_locks.census import codes_within
from stilltrue.runtime.waits.orphaned_locks.lock_effects import ACQUIRES, RELEASES
from stilltrue.runtime.waits.resolvers.locks import lock_of
from stilltrue.runtime.waits.wait import CallStack, Ender, ProcessView, Referable, Resolver, SeenWait

_WAITS = frozenset({threading.Condition.wait.__code__, asyncio.Condition.wait.__code__})
_WAITS_FOR = frozenset({threading.Condition.wait_for.__code__, asyncio.Condition.wait_for.__code__})
_ENTERS = frozenset({"BEFORE_WITH", "BEFORE_ASYNC_WITH", "LOAD_SPECIAL"})
_STORES = frozenset({"STORE_ATTR", "DELETE_ATTR"})
_BY_ONE = {"+=": ACQUIRES, "-=": RELEASES}
_WAITING = frozenset({"wait", "wait_for"})
_Effects = dict[int, str]
_NAMES_MAX = 32


@dataclass(frozen=True, slots=True, eq=False)
class Gate(Referable):
    """An attribute of an object. Parties that have raised it keep those waiting that test it."""

    owner: OwnRef
    attribute: str


_gates: dict[tuple[int, str], Gate] = {}
"""By identity of the object and attribute, for as long as the object lives."""


def gate_of(owner: Any, attribute: str) -> Gate | None:
    """The unique gate of an object's attribute; None if the object does not support weak references."""
    key = (id(owner), attribute)
    known = _gates.get(key)
    if known is not None and known.owner() is owner:
        return known
    try:
        weak = OwnRef(owner, lambda _: _gates.pop(key, None))
    except TypeError:
        return None
    gate = _gates[key] = Gate(weak, attribute)
    return gate


# -- raising (rule 2) ----------------------------------------------------------------------------------------------------


def raised_in(frame: FrameType) -> Iterator[tuple[Gate, frozenset[str]]]:
    """The gates that a frame has raised and will lower, each with the methods that may lower it otherwise."""
    code = frame.f_code
    raised = [attribute for attribute, offsets in _all_sure(code).items() if frame.f_lasti in offsets]
    owner = variables_of(frame).get(code.co_varnames[0], UNKNOWN) if raised else UNKNOWN
    if owner is UNKNOWN or not swallows_nothing(code, owner):
        return
    for attribute in raised:
        gate = gate_of(owner, attribute)
        if gate is not None:
            yield gate, lowering(type(owner), attribute)


def raised_by(function: FunctionType, given: list[Any]) -> tuple[Gate, bool] | None:
    """The gate that a call raises for its caller (True) or lowers (False); None if not understood."""
    found = _net(function.__code__) if given else None
    if found is None or not swallows_nothing(function.__code__, given[0]):
        return None
    gate = gate_of(given[0], found[0])
    return None if gate is None else (gate, found[1])


def lowering(kind: type, attribute: str) -> frozenset[str]:
    """The methods of a class that may lower an attribute that they have not raised, or set it in another way."""
    return frozenset(
        name
        for base in kind.__mro__
        for name, one in base.__dict__.items()
        if type(one) is FunctionType and name != "__init__" and _may_lower(getattr(one, "__wrapped__", one), attribute)
    )


def _raising(kind: type, attribute: str) -> frozenset[str]:
    """The methods of a class that raise an attribute for their caller."""
    members = ((name, one) for base in kind.__mro__ for name, one in base.__dict__.items() if type(one) is FunctionType)
    return frozenset(name for name, one in members if _net(one.__code__) == (attribute, True))


def _raises(code: CodeType, attribute: str) -> bool:
    """Whether code raises an attribute for its caller, or before it lowers it."""
    return attribute in _all_sure(code) or _net(code) == (attribute, True)


def _may_lower(function: Any, attribute: str) -> bool:
    code = getattr(function, "__code__", None)
    if type(code) is not CodeType:
        return True
    changes = _changes(code)
    effects = changes.get(attribute, {})
    if effects is not None and set(effects.values()) <= {ACQUIRES}:
        return False
    return attribute not in _all_sure(code) and _net(code) != (attribute, True)


@cached_by_code
def _changes(code: CodeType) -> Mapping[str, _Effects | None]:
    """By attribute of the first parameter, the instructions that raise and lower it; None if not understood."""
    if not code.co_argcount or not is_application(code):
        return {}
    counted, owned = _set_in(code, _effect), _set_in(code, _effect_on_owner)
    return {name: owned[name] if effects is None else effects for name, effects in counted.items()}


@cached_by_code
def _owned(code: CodeType) -> frozenset[str]:
    """The attributes of the first parameter that a code object raises or lowers by setting an owner."""
    counted, owned = _set_in(code, _effect), _set_in(code, _effect_on_owner)
    return frozenset(name for name, effects in counted.items() if effects is None and owned[name] is not None)


def _set_in(code: CodeType, effect_at: Callable[[Any, int, str], str | None]) -> dict[str, _Effects | None]:
    every = instructions_of(code)
    found: dict[str, _Effects | None] = {}
    for index, one in enumerate(every):
        if one.opname not in _STORES or not code.co_argcount:
            continue
        effect = effect_at(every, index, code.co_varnames[0])
        known = found.setdefault(one.argval, {})
        if effect is None or known is None:
            found[one.argval] = None
        else:
            known[index] = effect
    return found


def _effect_on_owner(every: Any, index: int, owner: str) -> str | None:
    """The effect if an owner is set after a wait, or removed; None for anything else."""
    one, load, value = every[index], every[index - 1], every[index - 2]
    if one.opname != "STORE_ATTR" or not _is_plain(load, owner):
        return None
    if value.opname.startswith("LOAD_CONST"):
        return RELEASES if value.argval is None else None
    return ACQUIRES if any(before.argval in _WAITING for before in every[:index]) else None


def _is_plain(load: Any, owner: str) -> bool:
    """Whether this loads the owner of the attribute, after the value of a single expression."""
    return load.opname in VARIABLES and load.argval == owner and not load.is_jump_target


def _effect(every: Any, index: int, owner: str) -> str | None:
    """The effect if an attribute is raised or lowered as a count or flag; None if it is set to anything else."""
    one = every[index]
    if one.opname != "STORE_ATTR":
        return None
    if every[index - 1].opname == "SWAP":  # load, copy, read, amount, operation
        load, copy, read, by, operation = every[max(0, index - 6) : index - 1] if index >= 6 else every[:5]
        known = load.argval == owner and copy.opname == "COPY" and read.argval == one.argval
        return _BY_ONE.get(operation.argrepr) if known and type(by.argval) is int and by.argval == 1 else None
    value, load = every[index - 2], every[index - 1]
    if not _is_plain(load, owner) or not value.opname.startswith("LOAD_CONST"):
        return None
    return {True: ACQUIRES, False: RELEASES}.get(value.argval) if type(value.argval) is bool else None


@cached_by_code
def may_raise(code: CodeType) -> bool:
    """Whether a frame of this code may hold a gate that it has raised."""
    return bool(_all_sure(code))


@cached_by_code
def _all_sure(code: CodeType) -> dict[str, frozenset[int]]:
    """By attribute that a code object both raises and lowers, the offsets at which it has surely raised it."""
    found = {}
    for attribute, effects in _changes(code).items():
        if effects and set(effects.values()) == {ACQUIRES, RELEASES}:
            balance = balance_of(code, effects, (), swallowed=False)
            if balance.sure is not None and not balance.unowned:
                found[attribute] = balance.sure
    return found


@cached_by_code
def _net(code: CodeType) -> tuple[str, bool] | None:
    """The only attribute that a code object has raised (True) or lowered (False) wherever it returns."""
    found = {}
    counted = _counting_beside(code)
    for attribute, effects in _changes(code).items():
        if effects is None or attribute in _all_sure(code) or (counted and attribute in _owned(code)):
            continue
        kinds = set(effects.values())
        if len(kinds) > 1:
            return None
        if not leaves_with(code, dict.fromkeys(effects, ACQUIRES)):
            return None
        found[attribute] = kinds == {ACQUIRES}
    return next(iter(found.items())) if len(found) == 1 else None


@cached_by_code
def _counting_beside(code: CodeType) -> str:
    """The only attribute in which a code object counts the entries of an owner that it also sets or removes; else empty."""
    changes = _changes(code)
    counts = [name for name, effects in changes.items() if effects is not None and name not in _owned(code)]
    return counts[0] if len(counts) == 1 and len(changes) == 2 and _owned(code) else ""


def swallows_nothing(code: CodeType, owner: Any, variables: Mapping[str, Any] | None = None) -> bool:
    """Rule 6; ``variables``: those of a frame of this code, which count if they are set at most once."""
    every = instructions_of(code)
    stores = [one.argval for one in every if one.opname.startswith("STORE_FAST")]  # since 3.13, two variables at once
    stores = [name for one in stores for name in (one if type(one) is tuple else (one,))]
    names = {name: value for name, value in (variables or {}).items() if stores.count(name) <= 1}
    names[code.co_varnames[0]] = owner
    entered = (expression_before(every, index) for index, one in enumerate(every) if one.opname in _ENTERS)
    return all(one and lock_of(value_of(one, names, {})) is not None for one in entered)


# -- waiting (rules 1 and 3) ---------------------------------------------------------------------------------------------


def condition_at(stack: CallStack, at: int) -> Any:
    """The condition that a party waits for without a timeout, in a frame that another has called; else None."""
    if at or stack.frames[0].f_code not in _WAITS or len(stack.frames) < 2:
        return None
    names = variables_of(stack.frames[0])
    return None if stack.task is None and names.get("timeout", 0) is not None else names.get("self")


def _read(stack: CallStack, at: int, view: ProcessView) -> SeenWait | None:
    condition = condition_at(stack, at)
    if condition is None:
        return None
    found = [_holders(owner, attribute, stack, view) for owner, attribute in _gates_of(stack, condition)]
    known = [one for one in found if one is not None]
    if not known:
        return None
    enders: list[Ender] = [ender for one, _, _, _ in known for ender in one]
    return SeenWait(
        on=condition if stack.task is None else stack.future,
        enders=tuple(dict.fromkeys(enders)),
        needs=None,
        what="a lock of the application held by {}",
        ended_through=tuple({id(owner): owner for _, owner, _, _ in known}.values()),
        ending_names=frozenset[str]().union(*(by for _, _, by, _ in known)),
        has_own_share=known[0][3] if len(known) == 1 else None,
    )


def _holders(
    owner: Any, attribute: str, stack: CallStack, view: ProcessView
) -> tuple[tuple[Ender, ...], Any, frozenset[str], Callable[[Sequence[CodeType]], bool] | None] | None:
    """The parties that have raised an attribute, if all are known (rule 3), and its owner.

    Also the names that lower it, and of a count whether some code only has a share of its own (rule 4).
    """
    kind = type(owner)
    counted = _count_of(kind, attribute)
    raised = counted or attribute
    if any(
        _is_set_otherwise(kind, one) or any(_has_raised(frame, one) for frame in stack.frames[1:3])
        for one in (attribute, raised)
    ):
        return None
    gate = gate_of(owner, raised)
    holders = () if gate is None else view.inside(gate)
    count = attribute_of(owner, raised)
    alone = count is True or (not counted and _has_owner(kind, attribute))
    if not holders or len(holders) != (1 if alone else count) or (counted and len(set(holders)) != 1):
        return None
    by = lowering(kind, attribute) | lowering(kind, raised)
    once = alone or bool(counted)
    if once and by and stack.who in holders:
        return None
    own = functools.partial(
        has_own_share,
        attribute=raised,
        lowering=by,
        raising=_raising(kind, raised),
        raises=functools.partial(_raises, attribute=raised),
    )
    return tuple(dict.fromkeys(holders)), owner, by | {attribute, raised}, None if once else own


def _count_of(kind: type, attribute: str) -> str:
    """The attribute in which the methods of a class count the entries of the owner ``attribute``; empty if there is none."""
    beside = {_counting_beside(code) for code in codes_in(kind) if attribute in _owned(code)}
    return beside.pop() if len(beside) == 1 else ""


def _is_set_otherwise(kind: type, attribute: str) -> bool:
    """Whether a method sets it to another value, or methods set it both as an owner and as a count (rule 5)."""
    changing = [code for code in codes_in(kind) if attribute in _changes(code)]
    owned = sum(attribute in _owned(code) for code in changing)
    return owned not in (0, len(changing)) or any(_changes(code)[attribute] is None for code in changing)


def _has_owner(kind: type, attribute: str) -> bool:
    """Whether a method raises or lowers it by setting an owner."""
    return any(attribute in _owned(code) for code in codes_in(kind))


def codes_in(kind: type) -> Iterator[CodeType]:
    """The code of all methods of a class except ``__init__``."""
    members = ((name, one) for base in kind.__mro__ for name, one in base.__dict__.items() if name != "__init__")
    return (code for name, one in members for code in _codes_of(one))


def _codes_of(member: Any) -> Iterator[CodeType]:
    for one in (member, *(getattr(member, name, None) for name in ("__wrapped__", "__func__", "fget", "fset", "fdel"))):
        if type(one) is FunctionType:
            yield from codes_within(one.__code__)


def _has_raised(frame: FrameType, attribute: str) -> bool:
    return frame.f_lasti in _all_sure(frame.f_code).get(attribute, ())


@dataclass(frozen=True, slots=True)
class WaitTest:
    """What a party that waits for a condition tests: from where to where in ``code`` (None: its result), with ``names``."""

    code: CodeType
    begins: int
    ends: int | None
    names: Mapping[str, Any]


def test_of(stack: CallStack, condition: Any) -> WaitTest | None:
    """What a party tests before it waits for a condition again; None if not understood."""
    frame = stack.frames[1]
    if frame.f_code in _WAITS_FOR:
        predicate = variables_of(frame).get("predicate")
        if type(predicate) is not FunctionType or predicate.__code__.co_argcount:
            return None
        names = dict(zip(predicate.__code__.co_freevars, _contents(predicate), strict=True))
        return WaitTest(predicate.__code__, 0, None, names)
    code, names = frame.f_code, variables_of(frame)
    place = wait_before(code, frame.f_lasti)
    if place is None or value_of(expression_before(instructions_of(code), place[1]), names, frame.f_globals) is not condition:
        return None
    return WaitTest(code, *place, names)


def _gates_of(stack: CallStack, condition: Any) -> Iterator[tuple[Any, str]]:
    """The attributes, with their objects, each of which alone keeps a party at this position waiting (rule 1)."""
    test = test_of(stack, condition)
    if test is None:
        return
    code, names = test.code, test.names
    for name in [*names][:_NAMES_MAX]:
        for attribute in [one for one in code.co_names if _is_raised(names[name], one)]:
            others = _others_than(attribute_of(names[name], attribute), names, code)
            if keeps_waiting(code, test.begins, test.ends, name, attribute, _kind_of(names[name], attribute), others):
                yield names[name], attribute


def _contents(function: FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # an empty cell
            yield None


def _is_raised(owner: Any, attribute: str) -> bool:
    value = attribute_of(owner, attribute) if is_of_application(type(owner)) else UNKNOWN
    if value is True or (type(value) is int and value > 0):
        return True
    return value is not UNKNOWN and value is not None and value is not False and _has_owner(type(owner), attribute)


def _kind_of(owner: Any, attribute: str) -> Positive:
    """The kind of a raised attribute."""
    value = attribute_of(owner, attribute)
    if _has_owner(type(owner), attribute):
        return Positive.OWNER if _is_surely_true(value) else Positive.ANYBODY
    return Positive.FLAG if value is True else Positive.COUNT


def _others_than(value: Any, names: Mapping[str, Any], code: CodeType) -> frozenset[str]:
    """The variables, set at most once, that are neither identical nor equal to this value; compared without running code."""
    kind = type(value)
    if kind not in (int, str, bytes) and any("__eq__" in base.__dict__ for base in kind.__mro__[:-1]):
        return frozenset()
    own = [name for name in code.co_varnames if name in names and name not in code.co_cellvars]
    stores = [one.argval for one in instructions_of(code) if one.opname == "STORE_FAST"]
    known = (name for name in own if stores.count(name) <= (name not in code.co_varnames[: code.co_argcount]))
    return frozenset(name for name in known if type(names[name]) is kind and names[name] != value)


def _is_surely_true(value: Any) -> bool:
    """Whether an object is true in a test, as far as that is known without running its code."""
    kind = type(value)
    if kind in (int, str, bytes):
        return bool(value)
    return not any("__bool__" in base.__dict__ or "__len__" in base.__dict__ for base in kind.__mro__)


def is_of_application(kind: type) -> bool:
    """Whether a class has a method that the application defines."""
    return any(
        type(one) is FunctionType and is_application(one.__code__) for base in kind.__mro__ for one in base.__dict__.values()
    )


PLACES = (("threading.py", "Condition.wait"), ("asyncio/locks.py", "Condition.wait"))
RESOLVERS = (Resolver(PLACES, _read),)
