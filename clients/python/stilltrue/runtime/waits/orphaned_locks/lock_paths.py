"""Where a lock is held on the paths through code: rules 3 and 4 of :mod:`~stilltrue.runtime.waits.orphaned_locks.balance`.

A state is a set of bits: the lock may be free, or held; the same two bits again, shifted, if a variable is true.
"""

from __future__ import annotations

import dis
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from types import CodeType

from stilltrue.runtime.bytecode.instructions import RETURNS, exception_entries_of, following, is_jump
from stilltrue.runtime.look.code.names import ATTRIBUTES
from stilltrue.runtime.waits.holders.with_blocks import instructions_of
from stilltrue.runtime.waits.orphaned_locks.lock_effects import (
    ACQUIRES,
    IDLE,
    KEEPS,
    KEEPS_AND_LOADS,
    MAY_ACQUIRE,
    RELEASES,
    TRIES,
    call_after,
    is_test,
)

FREE, HELD = 1, 2
_IF_TRUE = 2
"""How far the bits of a state are shifted if the variable with the result of ``acquire()`` is true."""
_EITHER = FREE | HELD
_ABORTS = frozenset({"abort", "abort_with_status"})


class Paths:
    """The paths through a code object, with the ``effects`` of its instructions on a lock."""

    def __init__(self, code: CodeType, effects: Mapping[int, str]) -> None:
        self.every = every = instructions_of(code)
        self._code, self._effects = code, effects
        self._index_of = {one.offset: index for index, one in enumerate(every)}
        self._aborting = frozenset(_aborting(every)) if not _ABORTS.isdisjoint(code.co_names) else frozenset()
        kept = [index for index, effect in effects.items() if effect.startswith(KEEPS)]
        self._flag = _flag_of(effects.values()) if kept else _tested_before_release(every, effects)
        self._flags = _flags(every, self._flag, kept) if self._flag else {}

    def states(self, *, failing: bool = True, swallowed: bool = True) -> list[int]:
        """For each instruction, whether the lock may be free, held or either before it; 0: it is not reached.

        The lower bits are those if the variable is false, or if there is none. ``failing``: follow exceptions, too;
        ``swallowed``: the exit of a block may swallow one.
        """
        every = self.every
        swallowing = frozenset() if swallowed else frozenset(_swallowing(every))
        entries = exception_entries_of(self._code) if failing else ()
        index_of = self._index_of
        handlers = [[index_of[entry.target] for entry in entries if entry.start <= one.offset < entry.end] for one in every]
        states = [0] * len(every)
        states[0] = _both(FREE) if self._flag else FREE
        todo = [0]
        while todo:
            index = todo.pop()
            before = states[index]
            after, ways = self._from(index, before)
            ways = [(way, state) for way, state in ways if index not in swallowing or way == index + 1]
            ways += [(way, before | after) for way in handlers[index]]
            for way, state in ways:
                if states[way] | state != states[way]:
                    states[way] |= state
                    todo.append(way)
        return states

    def leaving(self) -> list[int]:
        """For each instruction, in which states before it a path without exceptions returns with the lock held."""
        every = self.every
        coming: dict[tuple[int, int], set[tuple[int, int]]] = {}
        for index in range(len(every)):
            for state in (HELD, HELD << _IF_TRUE):
                for way, after in self._from(index, state)[1]:
                    for one in (HELD, HELD << _IF_TRUE):
                        if after & one:
                            coming.setdefault((way, one), set()).add((index, state))
        found = [0] * len(every)
        returns = (index for index, one in enumerate(every) if one.opname in RETURNS)
        todo = [(index, state) for index in returns for state in (HELD, HELD << _IF_TRUE)]
        while todo:
            index, state = todo.pop()
            if not found[index] & state:
                found[index] |= state
                todo += coming.get((index, state), ())
        return found

    def _from(self, index: int, before: int) -> tuple[int, list[tuple[int, int]]]:
        """The state after an instruction, and those with which each of the next ones is reached."""
        effect, learns, one = self._effects.get(index, ""), self._flags.get(index, -1), self.every[index]
        after = _with_flag(_after(before, effect, self._flag), learns)
        ways = [] if index in self._aborting else following(self.every, index, self._index_of)
        return after, [(way, _at_jump(one, after, effect, learns, jumps=way != index + 1)) for way in ways]


def _flag_of(effects: Iterable[str]) -> str:
    """The variable that keeps the result of ``acquire()``; empty: none, or several."""
    names = {one.removeprefix(KEEPS) for one in effects if one.startswith(KEEPS)}
    return names.pop() if len(names) == 1 else ""


def _flags(every: Sequence[dis.Instruction], flag: str, kept: Container[int]) -> dict[int, int | None]:
    """What instructions do to the variable ``flag``, or learn of it, by index.

    1 or 0: it becomes true or false; 2: unknown. None: the jump tests it.
    """
    found: dict[int, int | None] = {}
    for index, one in enumerate(every):
        names = one.argval if isinstance(one.argval, tuple) else (one.argval,)
        if flag in names and one.opname.startswith(("STORE_", "DELETE_")):
            before = every[index - 1] if index and not one.is_jump_target else None
            known = one.opname == "STORE_FAST" and before is not None and before.opname == "LOAD_CONST"
            if index not in kept:
                found[index] = int(bool(before.argval)) if known and before is not None else 2
        elif is_test(one) and not one.is_jump_target:
            loaded = index - 1
            while loaded and every[loaded].opname in IDLE and not every[loaded].is_jump_target:
                loaded -= 1
            if _leaves(every, loaded, flag):
                found[index] = None
    return found


def _leaves(every: Sequence[dis.Instruction], index: int, flag: str) -> bool:
    """Whether an instruction leaves the value of a variable on the stack."""
    one = every[index]
    if one.opname == KEEPS_AND_LOADS:
        return bool(one.argval[1] == flag)
    if one.opname == "STORE_FAST":
        return bool(one.argval == flag and index and every[index - 1].opname == "COPY" and every[index - 1].arg == 1)
    return one.opname.startswith("LOAD_FAST") and one.argval == flag


def lock_in(state: int) -> int:
    """A state of the lock alone, whatever the variable is."""
    return (state | state >> _IF_TRUE) & _EITHER


def _tested_before_release(every: Sequence[dis.Instruction], effects: Mapping[int, str]) -> str:
    """The variable that the code tests before it releases the lock, if it only sets it to constants; else empty."""
    found = set()
    for index in (index for index, effect in effects.items() if effect == RELEASES):
        before = next((at for at in range(index - 1, -1, -1) if is_jump(every[at]) or every[at].is_jump_target), 0)
        loaded = before - 1
        while loaded > 0 and every[loaded].opname in IDLE:
            loaded -= 1
        if is_test(every[before]) and every[loaded].opname.startswith("LOAD_FAST") and type(every[loaded].argval) is str:
            found.add(every[loaded].argval)
    name = found.pop() if len(found) == 1 else ""
    return name if name and 2 not in _flags(every, name, ()).values() else ""


def _both(state: int) -> int:
    """A state of the lock, whether the variable is true or not."""
    return state | state << _IF_TRUE


def _aborting(every: Sequence[dis.Instruction]) -> Iterator[int]:
    """The calls that end a gRPC call by an exception (rule 3)."""
    for index, one in enumerate(every):
        call = call_after(every, index) if one.opname in ATTRIBUTES and one.argval in _ABORTS else None
        if call is not None and (one.argval != "abort" or any(each.argval == "StatusCode" for each in every[index:call])):
            yield call


def _swallowing(every: Sequence[dis.Instruction]) -> Iterator[int]:
    """The jumps taken if the exit of a ``with`` block has swallowed an exception."""
    for index, one in enumerate(every):
        if one.opname == "WITH_EXCEPT_START":
            yield next(later for later in range(index, len(every)) if "IF_TRUE" in every[later].opname)


def _after(before: int, effect: str, flag: str) -> int:
    """The state after an effect. The lower bits are those if the variable ``flag`` is false, or if there is none."""
    held, free = _both(HELD), _both(FREE)
    if effect == ACQUIRES:
        return before & held | (before & free) << 1
    if effect == RELEASES:
        return before & free | (before & held) >> 1
    if effect.startswith(KEEPS) and flag:
        return before and ((before | before >> _IF_TRUE) & _EITHER) | HELD << _IF_TRUE
    return before | (before & free) << 1 if effect == MAY_ACQUIRE or effect.startswith(KEEPS) else before


def _with_flag(state: int, becomes: int | None) -> int:
    """The state after the variable has become true or false, or unknown (2)."""
    if becomes is None or becomes < 0:
        return state
    lock = lock_in(state)
    return (lock, lock << _IF_TRUE, _both(lock))[becomes]


def _at_jump(one: dis.Instruction, after: int, effect: str, learns: int | None, *, jumps: bool) -> int:
    """The state if a jump is taken (``jumps``) or not: what the test tells of the lock or of the variable."""
    if effect != TRIES and learns is not None:
        return after
    is_true = one.opname.endswith("IF_TRUE") == jumps
    if effect == TRIES:
        return _after(after, ACQUIRES, "") if is_true else after
    return after & (_EITHER << _IF_TRUE if is_true else _EITHER)
