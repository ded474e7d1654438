"""The control flow of a code object: which instructions may follow which, and where exceptions go."""

from __future__ import annotations

import dis
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from types import CodeType

from stilltrue.runtime.bytecode.instructions import exception_entries_of, following


class ControlFlow:
    """The control flow of one code object. Instructions are identified by index."""

    def __init__(self, code: CodeType, every: Sequence[dis.Instruction]) -> None:
        """``every``: all instructions."""
        self._every = every
        self._offsets = [one.offset for one in every]
        self.index_of = {offset: index for index, offset in enumerate(self._offsets)}
        """The index of an instruction by its offset."""
        self.handler_of: dict[int, int] = {}
        """The first handler of an exception, by instruction."""
        for entry in exception_entries_of(code):
            covered = (index for index, offset in enumerate(self._offsets) if entry.start <= offset < entry.end)
            self.handler_of.update(dict.fromkeys(covered, self.index_of[entry.target]))

    def at(self, offset: int) -> int:
        """The instruction at which a frame is; its offset may be inside the caches after the instruction."""
        return max(0, bisect_right(self._offsets, offset) - 1)

    def following(self, index: int) -> Iterator[int]:
        """The instructions that may come next if no exception is raised."""
        return following(self._every, index, self.index_of)

    def handlers(self, index: int) -> list[int]:
        """The handlers around an instruction, innermost first."""
        found: list[int] = []
        handler = self.handler_of.get(index)
        while handler is not None and handler not in found:
            found.append(handler)
            handler = self.handler_of.get(handler)
        return found

    def reached(self, begin: Iterable[int]) -> set[int]:
        """The instructions that may be executed from any of ``begin`` on, themselves and handlers of exceptions included."""
        todo = list(begin)
        seen = set(todo)
        while todo:
            index = todo.pop()
            more = {*self.following(index), *self.handlers(index)} - seen
            seen |= more
            todo += more
        return seen

    def names(self, indexes: Iterable[int]) -> frozenset[str]:
        """The names in some instructions; one instruction of CPython 3.13 may have two."""
        of_each = (one if type(one) is tuple else (one,) for one in (self._every[index].argval for index in indexes))
        return frozenset(name for names in of_each for name in names if type(name) is str)
