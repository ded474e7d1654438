"""Jobs that close something, behind what a thread or task has: a scheduler runs them when they are due."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.origins import is_application
from stilltrue.runtime.look.budget import Budget
from stilltrue.runtime.look.called_code.jobs import job_in
from stilltrue.runtime.look.code.attributes import named_values
from stilltrue.runtime.look.ways_out.kinds.closing.with_blocks import may_close
from stilltrue.runtime.look.ways_out.reach import Reach


class ClosingJobs:
    """The search of one look."""

    def __init__(self, budget: Budget) -> None:
        """``budget``: shared with the rest of the look."""
        self._reach = Reach((), budget)
        self._known: dict[int, tuple[Any, tuple[Any, ...]]] = {}

    def behind(self, things: Iterable[Any]) -> tuple[Any, ...]:
        """What the jobs found through some objects may close: the functions, their arguments and the globals they name."""
        found: list[Any] = []
        for thing in things:
            if id(thing) not in self._known:
                self._known[id(thing)] = thing, tuple(self._behind(thing))
            found += self._known[id(thing)][1]
        return tuple(found)

    def _behind(self, root: Any) -> Iterator[Any]:
        for thing in self._reach.objects_behind(root):
            functions, given = ((thing,), ()) if type(thing) is functools.partial else job_in(thing)
            for function in functions:
                code, names, _ = compat.code_behind(function)
                if may_close(function):
                    yield from (function, *given)
                    yield from named_values(code.co_names, names) if code is not None and is_application(code) else ()
