"""Which names the bytecode of a function speaks of: the attributes and variables that it reads, calls and sets."""

from __future__ import annotations

import dis
import itertools
from collections.abc import Iterable, Iterator, Sequence
from types import CodeType
from typing import Any

from stilltrue.runtime.introspection.by_code import kept_by_code

Receiver = tuple[str, ...]
"""``self.channel`` in ``self.channel.close()``; empty: an expression that is no such chain of names."""

ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
VARIABLES = frozenset({"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW", "LOAD_DEREF", "LOAD_NAME", "LOAD_GLOBAL"})
STORES = frozenset({"STORE_FAST", "STORE_DEREF", "STORE_NAME", "STORE_GLOBAL"})
ITEMS = "[]"
"""Stands for an item of anything in what is stored."""
WITH = "with "
"""Among names: a block is entered. No identifier has a space."""
IMPORT = "import "
"""Among names: the module is imported that follows, with a dot for each step up."""
_STORED = STORES | {"STORE_ATTR", "DELETE_ATTR", "DELETE_GLOBAL", "DELETE_NAME", "DELETE_DEREF", "DELETE_FAST"}
_STORED_ITEMS = frozenset({"STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE"})
_MUTATORS = frozenset({"update", "clear", "pop", "popitem", "setdefault", "append", "extend", "insert", "remove"})
_ANY_NAME = frozenset({"setattr", "delattr", "__setattr__", "__dict__", "vars", "globals"})
_IDLE = frozenset({"CACHE", "NOP", "PRECALL"})
_BOOKS = frozenset({"_max_workers", "_work_queue"})
"""What an executor knows of itself, and metrics report."""
_SIZES = frozenset({"qsize", "empty"})
_ENTERS = frozenset({"BEFORE_WITH", "BEFORE_ASYNC_WITH", "LOAD_SPECIAL", "SETUP_WITH", "SETUP_ASYNC_WITH"})
_MARKING = frozenset(dis.opmap[name] for name in (*_ENTERS, "IMPORT_NAME") if name in dis.opmap)
CALLING = frozenset({"CALL", "CALL_FUNCTION_EX", "CALL_KW"})


def chain_before(every: Sequence[dis.Instruction], index: int) -> Receiver:
    """The chain of names that is loaded just before ``index``; empty when it is something else."""
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


def stored_by(instructions: Iterable[Any], *, local: bool = True) -> frozenset[str]:
    """The names that some instructions may set, as variables or attributes; ``*``: any name, and :data:`ITEMS`.

    ``local``: also the variables that no other function shares.
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


@kept_by_code
def stored_in(code: CodeType) -> frozenset[str]:
    """The names that a code, or a function within it, may set and others may read."""
    within = (stored_in(one) for one in code.co_consts if isinstance(one, CodeType))
    return stored_by(dis.get_instructions(code), local=False).union(*within)


def mentioned_by(instructions: Iterable[Any]) -> frozenset[str]:
    """The attributes that some instructions name, and the globals that they call: not the variables that merely bear a name."""
    return frozenset(
        str(one.argval)
        for one in instructions
        if one.opname in ATTRIBUTES or (one.opname in ("LOAD_GLOBAL", "LOAD_NAME") and "NULL" in one.argrepr)
    )


def markers_of(instructions: Iterable[Any]) -> Iterator[str]:
    """:data:`WITH` and :data:`IMPORT`, where some instructions do so."""
    level = 0
    for one in instructions:
        if one.opname in _ENTERS:
            yield WITH
        elif one.opname == "IMPORT_NAME":
            yield f"{IMPORT}{'.' * level}{one.argval}"
        elif one.opname in ("LOAD_CONST", "LOAD_SMALL_INT") and type(one.argval) is int:
            level = one.argval


@kept_by_code
def markers_in(code: CodeType) -> frozenset[str]:
    """The same of a whole code."""
    return frozenset() if _MARKING.isdisjoint(code.co_code[::2]) else frozenset(markers_of(dis.get_instructions(code)))


@kept_by_code
def words_in(code: CodeType) -> frozenset[str]:
    """The names of a code, and its markers; without the functions within it."""
    return markers_in(code).union(code.co_names)


@kept_by_code
def mentioned_in(code: CodeType) -> frozenset[str]:
    """The same of a whole code, without the functions within it."""
    return mentioned_by(dis.get_instructions(code))


@kept_by_code
def only_measured_in(code: CodeType) -> frozenset[str]:
    """What a code merely reads of an executor: how many threads that may have, how much is in its queue."""
    measured = _BOOKS.intersection(code.co_names)
    if not measured:
        return measured
    every = [one for one in dis.get_instructions(code) if one.opname not in _IDLE]
    return measured.difference(
        one.argval
        for one, after in itertools.zip_longest(every, every[1:])
        if one.argval in _BOOKS and not (one.opname in ATTRIBUTES and _is_size(one.argval, after))
    )


def _is_size(name: str, after: Any) -> bool:
    """Whether what is read by this name is a size, by the instruction that follows."""
    return name == "_max_workers" or (after is not None and after.opname in ATTRIBUTES and after.argval in _SIZES)


@kept_by_code
def still_named(code: CodeType, at: int) -> frozenset[str] | None:
    """What a frame that stands at the instruction ``at`` may still read, however it goes on; None where that is all.

    That is what follows, the whole of the statement in which it stands, and of the loops around it: a ``for`` has its iterator.
    A ``with`` block or ``try`` around it may have been entered with what stands before.
    """
    every = _still_ahead(code, at)
    return None if every is None else frozenset(str(one.argval) for one in every if one.opname in ATTRIBUTES | VARIABLES)


@kept_by_code
def still_named_beside(code: CodeType, at: int) -> tuple[Receiver, frozenset[str]] | None:
    """What the call at the instruction ``at`` calls, and what the frame may still read besides that and its arguments.

    None where that is not understood, where what it calls is no chain of names, or where it may be called again.
    """
    every = _still_ahead(code, at) or ()
    last = next((one for one in reversed(every) if one.offset <= at), None)  # it may stand in the room kept behind a call
    place = None if last is None or last.opname not in CALLING else last.positions
    if place is None or None in (place.lineno, place.end_lineno, place.col_offset, place.end_col_offset):
        return None
    if any((one.opcode in dis.hasjrel or one.opcode in dis.hasjabs) and one.argval <= at for one in every):
        return None
    of_call = [one for one in every if one.offset <= at and is_part(one.positions, place)]
    callee: list[str] = []
    for one in (one for one in of_call if one.opname != "PUSH_NULL"):
        if one.opname not in (ATTRIBUTES if callee else VARIABLES):
            break
        callee.append(str(one.argval))
    others = [one for one in of_call if one.opname in CALLING and one is not last]
    if not callee or any(_begins(one.positions) == _begins(place) for one in others):  # ``f()()``
        return None
    own = {one.offset for one in of_call}
    besides = (one for one in every if one.offset not in own and one.opname in ATTRIBUTES | VARIABLES)
    return tuple(callee), frozenset(str(one.argval) for one in besides)


def _begins(place: Any) -> tuple[Any, Any]:
    return (None, None) if place is None else (place.lineno, place.col_offset)


def is_part(inner: Any, outer: Any) -> bool:
    """Whether one place in a source is within another."""
    if inner is None or None in (inner.lineno, inner.end_lineno, inner.col_offset, inner.end_col_offset):
        return False
    ends = (inner.end_lineno, inner.end_col_offset) <= (outer.end_lineno, outer.end_col_offset)
    return bool(ends and _begins(inner) >= _begins(outer))


def _still_ahead(code: CodeType, at: int) -> Sequence[dis.Instruction] | None:
    """The instructions of which :func:`still_named` speaks."""
    every = [one for one in dis.get_instructions(code) if one.opname not in _IDLE]
    if any(entry.start <= at < entry.end for entry in getattr(dis.Bytecode(code), "exception_entries", ())):
        return None
    first = next((index for index, one in enumerate(every) if one.offset >= at), len(every))
    begun = begin_of_statement(every, first)
    while any(_leads_before(one, every[begun].offset) for one in every[begun:]):
        earliest = min(one.argval for one in every[begun:] if _leads_before(one, every[begun].offset))
        begun = begin_of_statement(every, next(index for index, one in enumerate(every) if one.offset >= earliest))
    return every[begun:]


def pending_at(every: Sequence[dis.Instruction], at: int) -> list[int]:
    """The instructions of the same statement as the one ``at`` that have read what a call still to come is of, or for."""
    begun = begin_of_statement(every, at)
    spent = [one.positions for one in every[begun : at + 1] if one.opname in CALLING]
    read = (index for index in range(begun, at) if every[index].opname in ATTRIBUTES | VARIABLES)
    return [index for index in read if not any(is_part(every[index].positions, call) for call in spent)]


def begin_of_statement(every: Sequence[dis.Instruction], index: int) -> int:
    """Where the stack was last empty, but for the iterators of loops."""
    while index > 0:
        before = every[index - 1]
        walrus = index > 1 and every[index - 2].opname == "COPY"
        if before.opname in ("POP_TOP", "RESUME") or (before.opname in _STORED | _STORED_ITEMS and not walrus):
            break
        index -= 1
    return index


def _leads_before(one: dis.Instruction, offset: int) -> bool:
    return (one.opcode in dis.hasjrel or one.opcode in dis.hasjabs) and one.argval < offset
