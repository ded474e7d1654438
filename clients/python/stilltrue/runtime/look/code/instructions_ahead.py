"""The instructions ahead of a frame: those that may still run unless the frame is interrupted.

Rules:

1. The instructions that follow may run, including further rounds of a loop and both branches of a condition. Names read for a
   call that is still to come count, even if read before its arguments: ``sys.exit(await main())``.
2. An exception leads into the handlers that name its class (``socket.timeout``, also by a variable: ``except errors``), except
   those only for outside interruptions (``KeyboardInterrupt``, cancellation). Code in ``finally`` or after a bare ``except``
   counts only if it also follows without an exception: ``while True: sleep()`` with ``finally: server.stop()`` stops nothing
   until it is interrupted. A ``raise`` or ``assert`` of the program's own that is ahead, or in a function that is called there
   (``raising``), leads into these, too, and out of the function unless it is caught.
3. If a called function never returns, only the handlers of its callers are ahead; if it may raise, all of these, as in rule 2.
4. A loop whose condition reads a flag (``while not stop.is_set()``) ends when the flag changes: the code beyond it is ahead
   only then (:mod:`~stilltrue.runtime.look.code.conditions`).

Bytecode that is not understood may do anything.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, replace
from types import CodeType
from typing import Any

from stilltrue.runtime.bytecode.instructions import RETURNS, instructions, is_jump, line_of
from stilltrue.runtime.introspection.origins import is_own_code
from stilltrue.runtime.look.code.conditions import Condition, condition_at
from stilltrue.runtime.look.code.control_flow import ControlFlow
from stilltrue.runtime.look.code.names import (
    ATTRIBUTES,
    CALLING,
    STORES,
    VARIABLES,
    Receiver,
    chain_before,
    is_tested,
    markers_of,
    mentioned_by,
    names_stored_by,
    pending_at,
    variables_read,
)

_Step = tuple[int, int]
"""A step from one instruction to the next."""
CLOSING = frozenset({"close", "aclose", "stop", "terminate", "__exit__", "__aexit__"})
NEVER_RETURNING = frozenset({"_exit", *(f"exec{how}" for how in ("v", "ve", "vp", "vpe", "l", "le", "lp", "lpe"))})
"""Functions of ``os`` that do not return: the process ends or becomes another program."""
_BY_INTERRUPTION = frozenset({"KeyboardInterrupt", "SystemExit", "GeneratorExit", "CancelledError", "InterruptedError"})
_EVERYTHING = frozenset({"Exception", "BaseException"})
_MATCHES = frozenset({"CHECK_EXC_MATCH", "CHECK_EG_MATCH"})
_IN_CLAUSES = frozenset({"BUILD_TUPLE", "NOP"})
_ENTERS = frozenset({"BEFORE_WITH", "BEFORE_ASYNC_WITH", "LOAD_SPECIAL"})
_CALLS = CALLING | {"PRECALL"}
"""Where a frame is during a call. On CPython 3.11, ``PRECALL`` itself calls compiled functions once it is specialised."""
_CLAUSE_LENGTH_MAX = 24
_CODES_MAX = 4_096


@dataclass(frozen=True, slots=True)
class Ahead:
    """What may still run.

    ``closed``: the objects on which ``close()``, ``stop()`` or the like is called; ``exited``: those whose ``with`` block is
    left; ``entered``: those whose block is entered, or other names on the line of such a block. ``variables`` and
    ``attributes``: names read; ``mentioned``: attributes, and globals that are called; ``stored``: names set that others can
    read. ``functions``: inner functions not made yet; ``markers``: entered blocks and imports. ``loop_names``: names read in
    the current loop, if it has another round. ``returns``: whether the frame may return. ``raises``: whether an exception that
    the program raises may leave it. ``conditions``: what must change before a loop ends (rule 4). ``known``: False if the
    bytecode was not understood.
    """

    closed: frozenset[Receiver] = frozenset()
    exited: frozenset[Receiver] = frozenset()
    entered: frozenset[Receiver] = frozenset()
    variables: frozenset[str] = frozenset()
    attributes: frozenset[str] = frozenset()
    mentioned: frozenset[str] = frozenset()
    stored: frozenset[str] = frozenset()
    functions: frozenset[CodeType] = frozenset()
    markers: frozenset[str] = frozenset()
    conditions: tuple[Condition, ...] = ()
    loop_names: frozenset[str] = frozenset()
    returns: bool = True
    raises: bool = False
    known: bool = True

    def in_loop(self) -> Ahead:
        """The same, restricted to the current loop."""
        return replace(self, variables=self.variables & self.loop_names, attributes=self.attributes & self.loop_names)

    @property
    def names(self) -> frozenset[str]:
        """The attributes and variables read."""
        return self.variables | self.attributes


_ANYTHING = Ahead(known=False)


@functools.lru_cache(maxsize=_CODES_MAX)
def ahead_of(
    code: CodeType,
    at: int,
    *,
    returns_to: bool = True,
    raises_to: bool = False,
    beyond: bool = True,
    raising: frozenset[str] = frozenset(),
) -> Ahead:
    """What is ahead of a frame of ``code`` at the instruction offset ``at``.

    ``returns_to``, ``raises_to``: whether a function it has called may return to it, or raise an exception (rule 3).
    ``beyond``: include the code beyond loops that end when a flag changes (rule 4). ``raising``: the names of functions that
    may raise an exception.
    """
    try:
        return _Walk(code, raising).ahead(at, returns_to, raises_to, beyond)
    except Exception:  # noqa: BLE001 - bytecode of another kind
        return _ANYTHING


def reached_from(code: CodeType, at: int) -> set[int]:
    """The instructions (by index) ahead of a frame of ``code`` at the offset ``at``."""
    return _Walk(code).reached(at)


@functools.lru_cache(maxsize=_CODES_MAX)
def is_looped(code: CodeType, at: int, name: str) -> bool:
    """Whether a frame at ``at`` is in a loop, or reaches one that reads ``name``: ``while one := get()``."""
    try:
        return _Walk(code).is_looped(at, name)
    except Exception:  # noqa: BLE001 - bytecode of another kind
        return True


@functools.lru_cache(maxsize=_CODES_MAX)
def loop_around(code: CodeType, at: int) -> tuple[int, frozenset[int]]:
    """The instruction (by index) of a frame at ``at``, and those of the loops around it; none if it is in no loop."""
    walk = _Walk(code)
    return walk.at(at), frozenset(walk.loop_around(at))


@functools.lru_cache(maxsize=_CODES_MAX)
def names_at(code: CodeType, at: int) -> frozenset[str]:
    """The names in the expression that an instruction completes: of its callee and arguments."""
    every = list(instructions(code))
    at = max((one.offset for one in every if one.offset <= at), default=0)
    place = next(one.positions for one in every if one.offset == at)
    within = [one for one in every if _is_within(one.positions, place)]
    return frozenset(str(one.argval) for one in within if one.opname in ATTRIBUTES | VARIABLES)


def arguments_at(code: CodeType, at: int) -> int:
    """The number of arguments of the call that an instruction makes; 0 if it is not known."""
    found = [one for one in instructions(code) if one.offset <= at]
    calls = found and found[-1].opname in _CALLS
    return int(found[-1].argval) if calls and type(found[-1].argval) is int else 0


def _is_within(inner: Any, outer: Any) -> bool:
    if inner is None or outer is None or None in (*inner, *outer):
        return False
    begin, end = (inner.lineno, inner.col_offset), (inner.end_lineno, inner.end_col_offset)
    return bool((outer.lineno, outer.col_offset) <= begin and end <= (outer.end_lineno, outer.end_col_offset))


def _is_class(name: str) -> bool:
    return name[:1].isupper()


class _Walk:
    """A walk along the instructions of one code object."""

    def __init__(self, code: CodeType, raising: frozenset[str] = frozenset()) -> None:
        self._code = code
        self._raising = raising
        self._all = list(instructions(code))
        self._flow = ControlFlow(code, self._all)
        self._is_own = is_own_code(code)

    def ahead(self, at: int, returns_to: bool, raises_to: bool, beyond: bool) -> Ahead:
        begun = at < 0
        start = self._flow.at(at)
        ends = self._ends_of_loop(start) if returns_to and not begun else {}
        without = () if beyond else ends
        reached = self._reached(start, normally=returns_to, raised=raises_to, begun=begun, without=without)
        stored = {self._all[index].argval for index in reached if self._all[index].opname in STORES}
        if not begun:
            reached.update(pending_at(self._all, start) if returns_to else ())
        return Ahead(
            closed=frozenset(() if one[:1] and one[0] in stored else one for one in self._closed(reached)),
            exited=frozenset(self._exited(at, reached)),
            entered=frozenset(one for index in reached if self._all[index].opname in _ENTERS for one in self._manager(index)),
            stored=names_stored_by((self._all[index] for index in reached), local=False),
            mentioned=mentioned_by(self._all, reached),
            functions=frozenset(one.argval for one in map(self._all.__getitem__, reached) if type(one.argval) is CodeType),
            markers=frozenset(markers_of(self._all[index] for index in sorted(reached))),
            conditions=tuple(dict.fromkeys(ends.values())),
            variables=frozenset(name for index in reached for name in variables_read(self._all[index])),
            attributes=frozenset(str(self._all[index].argval) for index in reached if self._all[index].opname in ATTRIBUTES),
            loop_names=frozenset(
                name
                for one in map(self._all.__getitem__, self._loop_around(start) if self._comes_round(start) else ())
                for name in ((str(one.argval),) if one.opname in ATTRIBUTES else variables_read(one))
            ),
            returns=any(self._all[index].opname in RETURNS for index in (start, *reached)),  # it may just have returned
            raises=(raises_to and self._escapes(start)) or any(map(self._escapes, filter(self._is_raise, reached))),
        )

    def reached(self, at: int) -> set[int]:
        return self._reached(self._flow.at(at), normally=True, begun=at < 0, without=())

    # -- reachable instructions ----------------------------------------------------------------------------------------

    def _reached(
        self, start: int, *, normally: bool, begun: bool, raised: bool = False, without: Container[_Step] = ()
    ) -> set[int]:
        todo = [start] if begun else [*(self._next(start, without) if normally else ()), *self._handlers(start)]
        todo += self._raised_to(start) if raised else ()
        reached: set[int] = set()
        while todo:
            index = todo.pop()
            if index not in reached:
                reached.add(index)
                todo += [*self._next(index, without), *self._handlers(index)]
                todo += self._raised_to(index) if self._is_raise(index) else ()
        return reached

    def _ends_of_loop(self, start: int) -> dict[_Step, Condition]:
        """The steps that leave a loop when a flag changes that the loop itself does not set (rule 4).

        The loop is the one around ``start``. Without one, the loops ahead count, whose conditions are tested once before their
        first round.
        """
        round_trip = self._loop_around(start)
        ends = self._conditions(round_trip, lambda _, after: after not in round_trip)
        if not round_trip:
            steps = self._conditions(self._reached(start, normally=True, begun=False), lambda _, __: True)
            of_loops = {
                (after, condition)
                for (index, after), condition in steps.items()
                if index in (loop := self._loop_around(index)) and after not in loop
            }
            ends = {step: condition for step, condition in steps.items() if (step[1], condition) in of_loops}
        within = self._reached(start, normally=True, begun=False, without=ends)
        stored = names_stored_by(self._all[index] for index in within)
        return {step: condition for step, condition in ends.items() if condition.reads.isdisjoint(stored)}

    def _conditions(self, among: Iterable[int], which: Callable[[int, int], bool]) -> dict[_Step, Condition]:
        return {
            (index, after): condition
            for index in among
            for after in self._next(index)
            if which(index, after) and (condition := condition_at(self._all, index, after)) is not None
        }

    def at(self, at: int) -> int:
        """The index of the instruction at an offset."""
        return self._flow.at(at)

    def loop_around(self, at: int) -> set[int]:
        """As the module's function of the same name."""
        return self._loop_around(self._flow.at(at))

    def is_looped(self, at: int, name: str) -> bool:
        """As the module's function of the same name."""
        ahead = (index for index in self.reached(at) if self._all[index].argval == name)
        return any(map(self._loop_around, (self._flow.at(at), *ahead)))

    def _comes_round(self, start: int) -> bool:
        """Whether the loop around ``start`` has another round; a child process ending in ``finally: os._exit(0)`` has none."""
        every = enumerate(self._all)
        last = {index for index, one in every if one.opname in ATTRIBUTES | VARIABLES and one.argval in NEVER_RETURNING}
        return bool(self._loop_around(start, last))

    def _loop_around(self, start: int, without: Container[int] = ()) -> set[int]:
        """The instructions that may follow ``start`` and lead back to it without an exception.

        ``without``: excluded instructions.
        """
        before: dict[int, list[int]] = {}
        todo, seen = [start], {start}
        while todo:
            index = todo.pop()
            for after in self._next(index):
                if after in without:
                    continue
                before.setdefault(after, []).append(index)
                if after not in seen:
                    seen.add(after)
                    todo.append(after)
        todo, found = list(before.get(start, ())), set()
        while todo:
            index = todo.pop()
            if index not in found:
                found.add(index)
                todo += before.get(index, ())
        return found

    def _next(self, index: int, without: Container[_Step] = ()) -> Iterator[int]:
        return (after for after in self._flow.following(index) if (index, after) not in without)

    def _handlers(self, index: int) -> Iterator[int]:
        """Where an exception raised here may continue (rule 2)."""
        for handler in self._flow.handlers(index):
            for names, body in self._clauses(handler):
                classes = {one for one in names or () if _is_class(one)}
                if names is not None and (not classes or not classes <= _BY_INTERRUPTION):
                    yield body

    def _is_raise(self, index: int) -> bool:
        one = self._all[index]
        called = one.opname in ATTRIBUTES | VARIABLES and one.argval in self._raising
        return self._is_own and (called or one.opname == "RAISE_VARARGS")

    def _raised_to(self, index: int) -> Iterator[int]:
        """The handlers that an exception raised here reaches: ``finally``, a bare ``except``, the exit of a block (rule 2)."""
        for handler in self._flow.handlers(index):
            yield handler
            if self._catches(handler, index):
                return

    def _escapes(self, index: int) -> bool:
        return not any(self._catches(handler, index) for handler in self._flow.handlers(index))

    def _catches(self, handler: int, index: int) -> bool:
        """Whether a handler ends each exception raised by the instruction at ``index``, or below it."""
        one = self._all[index]
        named = names_at(self._code, one.offset) if one.opname == "RAISE_VARARGS" else ()
        raised = frozenset(filter(_is_class, named))
        catching = raised | (_EVERYTHING if _BY_INTERRUPTION.isdisjoint(raised) else {"BaseException"})
        return any(names is None or not catching.isdisjoint(names) for names, _ in self._clauses(handler))

    def _clauses(self, index: int) -> Iterator[tuple[list[str] | None, int]]:
        """The ``except`` clauses of a handler: the names of their classes (None: a bare one), and where their bodies begin."""
        if self._all[index].opname == "END_ASYNC_FOR":
            yield [], index + 1
            return
        if self._all[index].opname == "PUSH_EXC_INFO":
            index += 1
        while True:
            names: list[str] = []
            for _ in range(_CLAUSE_LENGTH_MAX):
                one = self._all[index]
                if one.opname in _MATCHES:
                    break
                if one.opname not in VARIABLES and one.opname not in ATTRIBUTES and one.opname not in _IN_CLAUSES:
                    if one.opname == "POP_TOP" and not names:
                        yield None, index + 1
                    return
                names += [str(one.argval)] if one.opname not in _IN_CLAUSES else []
                index += 1
            else:
                return
            while not is_jump(self._all[index]):
                index += 1
            yield names, index + 1
            index = self._flow.index_of[self._all[index].argval]

    # -- closed objects and exited blocks ------------------------------------------------------------------------------

    def _closed(self, reached: Iterable[int]) -> Iterator[Receiver]:
        for index in reached:
            one = self._all[index]
            if one.opname in ATTRIBUTES and one.argval in CLOSING and not is_tested(self._all, index):
                yield chain_before(self._all, index)
            elif (
                one.opname == "LOAD_CONST" and isinstance(one.argval, str) and one.argval in CLOSING and not self._is_key(index)
            ):
                yield ()  # a name to look up, as by ``getattr``

    def _is_key(self, index: int) -> bool:
        return "SUBSCR" in self._all[index + 1].opname

    def _exited(self, at: int, reached: Iterable[int]) -> Iterator[Receiver]:
        """The ``with`` blocks around ``at`` that may be left without an exception."""
        for handler in self._flow.handlers(self._flow.at(at)):
            ops = [one.opname for one in self._all[handler : handler + 3]]
            if "WITH_EXCEPT_START" in ops and any(handler not in self._flow.handlers(index) for index in reached):
                yield from self._of_block(min(index for index, first in self._flow.handler_of.items() if first == handler))

    def _of_block(self, first: int) -> Iterator[Receiver]:
        """The object of the ``with`` block whose body begins at ``first``."""
        if self._all[first].opname in STORES:
            yield (str(self._all[first].argval),)
            return
        before = first - 1
        while before > 0 and self._all[before].opname not in _ENTERS:
            before -= 1
        yield from self._manager(before)

    def _manager(self, before: int) -> Iterator[Receiver]:
        """The object whose block is entered at ``before``."""
        chain = chain_before(self._all, before)
        if chain:
            yield chain
            return
        line = line_of(self._all[before])
        if line is None:
            yield ()
        for one in self._all[:before]:
            if line is not None and line_of(one) == line and one.opname in VARIABLES:
                yield (str(one.argval),)
