"""The names used by a function's bytecode: the attributes and variables it reads, calls and sets."""

from __future__ import annotations

import dis
import itertools
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from types import CodeType
from typing import Any

from stilltrue.runtime.bytecode.instructions import exception_entries_of, instructions, is_jump
from stilltrue.runtime.introspection.code_cache import cached_by_code

Receiver = tuple[str, ...]
"""The names of ``self.channel`` in ``self.channel.close()``; empty for an expression that is not a chain of names."""

ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
VARIABLES = frozenset({"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW", "LOAD_DEREF", "LOAD_NAME", "LOAD_GLOBAL"})
STORES = frozenset({"STORE_FAST", "STORE_DEREF", "STORE_NAME", "STORE_GLOBAL"})
ITEMS = "[]"
"""Stands for any item among stored names."""
WITH = "with "
"""Among names: a block is entered. No identifier contains a space."""
IMPORT = "import "
"""Among names: the following module is imported, with a dot per level up."""
_STORED = STORES | {"STORE_ATTR", "DELETE_ATTR", "DELETE_GLOBAL", "DELETE_NAME", "DELETE_DEREF", "DELETE_FAST"}
_STORED_ITEMS = frozenset({"STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE"})
_MUTATORS = frozenset({"update", "clear", "pop", "popitem", "setdefault", "append", "extend", "insert", "remove"})
_ANY_NAME = frozenset({"setattr", "delattr", "__setattr__", "__dict__", "vars", "globals"})
_TESTS = frozenset({"wait", "is_set"})
_IGNORED = frozenset({"CACHE", "NOP", "PRECALL"})
_SIZE_ATTRIBUTES = frozenset({"_max_workers", "total_tokens"})
_COUNTERS = _SIZE_ATTRIBUTES | {"_work_queue"}
"""Attributes of an executor, or of anyio's limiter, that metrics read."""
_SIZES = frozenset({"qsize", "empty"})
_CANCEL = "cancel"
_CANCELLING = frozenset({_CANCEL})
_OF_TIMERS = frozenset({"threading", "Timer", _CANCEL})
_ENTERS = frozenset({"BEFORE_WITH", "BEFORE_ASYNC_WITH", "LOAD_SPECIAL", "SETUP_WITH", "SETUP_ASYNC_WITH"})
RUNS_TEXT = "eval or exec"
"""Marks code that runs what comes as text."""
_RUNNING_TEXT = frozenset({"eval", "exec"})
_MARKING = frozenset(dis.opmap[name] for name in (*_ENTERS, "IMPORT_NAME") if name in dis.opmap)
CALLING = frozenset({"CALL", "CALL_FUNCTION_EX", "CALL_KW"})


def chain_before(every: Sequence[dis.Instruction], index: int) -> Receiver:
    """The chain of names loaded just before ``index``; empty if it is any other expression."""
    names: list[str] = []
    for at in range(index - 1, -1, -1):
        one = every[at]
        if one.opname in ATTRIBUTES and not one.is_jump_target:
            names.append(str(one.argval))
        elif one.opname in VARIABLES and isinstance(one.argval, str):
            return (one.argval, *reversed(names))
        elif one.opname not in ("COPY", "SWAP", "PUSH_NULL", "CACHE", "NOP"):
            break
    return ()


def variables_read(one: Any) -> tuple[str, ...]:
    """The variables that an instruction reads; from CPython 3.13 on, some read two, or set one and read one."""
    if one.opname in VARIABLES:
        return (str(one.argval),)
    if "FAST" not in one.opname or not isinstance(one.argval, tuple):
        return ()
    stores = one.opname.count("STORE_FAST")
    return tuple(map(str, one.argval[stores:]))


def names_stored_by(instructions: Iterable[Any], *, local: bool = True) -> frozenset[str]:
    """The names that instructions may set as variables or attributes; ``*`` for any name, :data:`ITEMS` for items.

    ``local``: include variables that no other function shares.
    """
    found: set[str] = set()
    for one in instructions:
        if not local and "FAST" in one.opname and one.argval not in _ANY_NAME:
            continue
        if one.opname in _STORED_ITEMS or (one.opname in ATTRIBUTES and one.argval in _MUTATORS):
            found.add(ITEMS)
        elif one.opname in _STORED or one.opname.startswith("STORE_FAST"):
            found.update(one.argval if isinstance(one.argval, tuple) else (str(one.argval),))
        elif one.argval in _ANY_NAME and one.opname in ATTRIBUTES | VARIABLES:
            found.add("*")
    return frozenset(found)


@cached_by_code
def names_stored_in(code: CodeType) -> frozenset[str]:
    """The names that a code object, or a function inside it, may set and others may read."""
    within = (names_stored_in(one) for one in code.co_consts if isinstance(one, CodeType))
    return names_stored_by(instructions(code), local=False).union(*within)


def mentioned_by(every: Sequence[Any], among: Iterable[int] | None = None) -> frozenset[str]:
    """The attributes that instructions name and the globals they call, without plain variables and tested events.

    ``among``: the indices of those that count; all if not given.
    """
    return frozenset(
        str(every[index].argval)
        for index in (range(len(every)) if among is None else among)
        if (every[index].opname in ATTRIBUTES and not is_tested(every, index))
        or (every[index].opname in ("LOAD_GLOBAL", "LOAD_NAME") and "NULL" in every[index].argrepr)
    )


def is_tested(every: Sequence[Any], index: int) -> bool:
    """Whether the attribute loaded at ``index`` is only an event to be tested: the ``stop`` of ``self.stop.is_set()``."""
    after = every[index + 1] if index + 1 < len(every) else None
    return after is not None and after.opname in ATTRIBUTES and after.argval in _TESTS


def markers_of(instructions: Iterable[Any]) -> Iterator[str]:
    """:data:`WITH`, :data:`IMPORT` and :data:`RUNS_TEXT` markers of some instructions."""
    level = 0
    for one in instructions:
        if one.opname in _ENTERS:
            yield WITH
        elif one.opname in ("LOAD_GLOBAL", "LOAD_NAME") and one.argval in _RUNNING_TEXT:
            yield RUNS_TEXT
        elif one.opname == "IMPORT_NAME":
            yield f"{IMPORT}{'.' * level}{one.argval}"
        elif one.opname in ("LOAD_CONST", "LOAD_SMALL_INT") and type(one.argval) is int:
            level = one.argval


@cached_by_code
def markers_in(code: CodeType) -> frozenset[str]:
    """The markers of a whole code object."""
    marked = not (_MARKING.isdisjoint(code.co_code[::2]) and _RUNNING_TEXT.isdisjoint(code.co_names))
    return frozenset(markers_of(instructions(code))) if marked else frozenset()


@cached_by_code
def words_in(code: CodeType) -> frozenset[str]:
    """The names and markers of a code object, without the functions inside it."""
    return markers_in(code).union(code.co_names)


@cached_by_code
def mentioned_in(code: CodeType) -> frozenset[str]:
    """As :func:`mentioned_by`, for a whole code object without the functions inside it."""
    return mentioned_by(list(instructions(code)))


@cached_by_code
def only_measured_names(code: CodeType) -> frozenset[str]:
    """Attributes that a code object only measures: the number of threads or tokens, the length of the queue."""
    measured = _COUNTERS.intersection(code.co_names)
    if not measured:
        return measured
    every = [one for one in instructions(code) if one.opname not in _IGNORED]
    return measured.difference(
        one.argval
        for one, after in itertools.zip_longest(every, every[1:])
        if one.argval in _COUNTERS and not (one.opname in ATTRIBUTES and _is_size(one.argval, after))
    )


@cached_by_code
def names_of_own_timers(code: CodeType) -> frozenset[str]:
    """``cancel``, if a code object cancels nothing but the timers in its own variables: ``timer = threading.Timer(...)``."""
    if not _OF_TIMERS.issubset(code.co_names):
        return frozenset()
    every = [one for one in instructions(code) if one.opname not in _IGNORED]
    stores: dict[str, list[bool]] = {}
    for index, one in enumerate(every):
        if one.opname in STORES or one.opname.startswith("STORE_FAST"):
            made = one.opname == "STORE_FAST" and _makes_timer(every, index - 1)
            for name in one.argval if isinstance(one.argval, tuple) else (one.argval,):
                stores.setdefault(name, []).append(made)
    timers = {(name,) for name, made in stores.items() if all(made) and name not in code.co_varnames[: _parameters_of(code)]}
    cancelled = [chain_before(every, index) for index, one in enumerate(every) if one.argval == _CANCEL]
    return _CANCELLING if all(one in timers for one in cancelled) else frozenset()


def _parameters_of(code: CodeType) -> int:
    return code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)


def _makes_timer(every: Sequence[dis.Instruction], at: int) -> bool:
    """Whether the instruction at ``at`` calls ``threading.Timer``."""
    place = None if every[at].opname not in CALLING else every[at].positions
    begins = _position_start(place)
    if None in begins:
        return False
    same = [index for index, one in enumerate(every[: at + 1]) if _position_start(one.positions) == begins]
    made = [every[index] for index in same if is_part(every[index].positions, place)]
    names = [one.argval for one in made if one.opname in ATTRIBUTES | VARIABLES]
    return names == ["threading", "Timer"] and sum(one.opname in CALLING for one in made) == 1


def _is_size(name: str, after: Any) -> bool:
    """Whether the name reads a size, judging by the following instruction."""
    return name in _SIZE_ATTRIBUTES or (after is not None and after.opname in ATTRIBUTES and after.argval in _SIZES)


@cached_by_code
def still_named(code: CodeType, at: int) -> frozenset[str] | None:
    """The names a frame at ``at`` may still read, however it continues; None if that may be all names.

    These are the names that follow, those of the whole current statement, and those of the loops around it (a ``for`` loop
    keeps its iterator). Inside a ``with`` block or ``try``, names used before may still matter.
    """
    every = _still_ahead(code, at)
    return None if every is None else frozenset(str(one.argval) for one in every if one.opname in ATTRIBUTES | VARIABLES)


@cached_by_code
def still_named_outside_call(code: CodeType, at: int) -> tuple[Receiver, frozenset[str]] | None:
    """The callee of the call at ``at``, and the names the frame may still read outside that call.

    None if the bytecode is not understood, the callee is not a chain of names, or the call may be made again.
    """
    every = _still_ahead(code, at) or ()
    last = next((one for one in reversed(every) if one.offset <= at), None)  # a frame's offset may be in the cache after a call
    place = None if last is None or last.opname not in CALLING else last.positions
    if place is None or None in (place.lineno, place.end_lineno, place.col_offset, place.end_col_offset):
        return None
    if any(is_jump(one) and one.argval <= at for one in every):
        return None
    of_call = [one for one in every if one.offset <= at and is_part(one.positions, place)]
    callee: list[str] = []
    for one in (one for one in of_call if one.opname != "PUSH_NULL"):
        if one.opname not in (ATTRIBUTES if callee else VARIABLES):
            break
        callee.append(str(one.argval))
    others = [one for one in of_call if one.opname in CALLING and one is not last]
    if not callee or any(_position_start(one.positions) == _position_start(place) for one in others):  # ``f()()``
        return None
    own = {one.offset for one in of_call}
    outside = (one for one in every if one.offset not in own and one.opname in ATTRIBUTES | VARIABLES)
    return tuple(callee), frozenset(str(one.argval) for one in outside)


def _position_start(place: Any) -> tuple[Any, Any]:
    return (None, None) if place is None else (place.lineno, place.col_offset)


def is_part(inner: Any, outer: Any) -> bool:
    """Whether one source position is inside another."""
    if inner is None or outer is None or None in (inner.lineno, inner.end_lineno, inner.col_offset, inner.end_col_offset):
        return False
    ends = (inner.end_lineno, inner.end_col_offset) <= (outer.end_lineno, outer.end_col_offset)
    return bool(ends and _position_start(inner) >= _position_start(outer))


def _still_ahead(code: CodeType, at: int) -> Sequence[dis.Instruction] | None:
    """The instructions that :func:`still_named` reads."""
    every = [one for one in instructions(code) if one.opname not in _IGNORED]
    if any(entry.start <= at < entry.end for entry in exception_entries_of(code)):
        return None
    first = next((index for index, one in enumerate(every) if one.offset >= at), len(every))
    begun = begin_of_statement(every, first)
    while (earliest := min(_targets(every, begun), default=begun)) < begun:
        begun = begin_of_statement(every, earliest)
    return every[begun:]


def pending_at(every: Sequence[dis.Instruction], at: int) -> list[int]:
    """Instructions of the statement at ``at`` that loaded names for a call still to come."""
    begun = begin_of_statement(every, at)
    spent = [one.positions for one in every[begun : at + 1] if one.opname in CALLING]
    read = (index for index in range(begun, at) if every[index].opname in ATTRIBUTES | VARIABLES)
    return [index for index in read if not any(is_part(every[index].positions, call) for call in spent)]


def begin_of_statement(every: Sequence[dis.Instruction], index: int) -> int:
    """The start of the statement: where the stack was last empty, apart from iterators of loops."""
    while index > 0:
        before = every[index - 1]
        walrus = index > 1 and every[index - 2].opname == "COPY"
        if before.opname in ("POP_TOP", "RESUME") or (before.opname in _STORED | _STORED_ITEMS and not walrus):
            break
        index -= 1
    return index


def _targets(every: Sequence[dis.Instruction], begun: int) -> Iterator[int]:
    """The indices to which the instructions from ``begun`` on may jump. A jump to an ignored one leads to the next."""
    jumps = (one.argval for one in every[begun:] if is_jump(one))
    return (bisect_left(every, target, key=lambda one: one.offset) for target in jumps)
