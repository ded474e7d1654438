"""An entry of the field catalogue, and the truth about it, which stands in the program's own comments.

``# core: SERVICE`` in a line of the program says that one party of SERVICE stands in this line in the core;
``# core: SERVICE x2`` that two do; ``# behind: SERVICE`` likewise. All other lines have nobody in the remainder.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import tests.field.catalogue

PROGRAMS = Path(__file__).with_name("programs")
_MARK = re.compile(r"#.*?\b(core|behind): (\S+)(?: x(\d+))?")
Where = tuple[str, str, int]
"""A service, a file's name and a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A deadlock that people published.

    ``source`` is the repository and the number of the issue. ``library`` is what it is shown with, ``what`` one sentence for
    people. ``near`` are the near misses, by mode, each in a few words. ``processes`` are started one by one, each with its
    name; empty: one process. ``servers`` are ``postgres`` and ``redis``; ``modules``: without one of these it is skipped.
    ``predicate`` is the one that holds; ``lines``: whether its verdict says where the parties stand. ``elsewhere``: how many
    parties of a service without code, such as a database's, are in the core; ``behind_elsewhere``: how many are behind it,
    without a line of the program.
    """

    program: str
    source: str
    library: str
    what: str
    near: dict[str, str]
    processes: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    predicate: str = "deadlock"
    lines: bool = True
    elsewhere: Mapping[str, int] = field(default_factory=dict)
    behind_elsewhere: Mapping[str, int] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """The program."""
        return PROGRAMS / f"{self.program}.py"

    @property
    def url(self) -> str:
        """The published source; empty for what is widely known."""
        repository, _, number = self.source.rpartition(" ")
        return f"https://github.com/{repository}/issues/{number}" if number.isdigit() else ""

    def expected(self, kind: str) -> Counter[Where]:
        """How many parties stand where in the ``core``, or ``behind`` it."""
        found: Counter[Where] = Counter()
        for service, count in (self.elsewhere if kind == "core" else self.behind_elsewhere).items():
            found[service, "", 0] += count
        for number, line in enumerate(self.path.read_text().splitlines(), 1):
            for mark in _MARK.finditer(line):
                if mark[1] == kind:
                    found[mark[2], self.path.name, number] += int(mark[3] or 1)
        return found


def entries() -> list[Entry]:
    """The whole catalogue: ``ENTRIES`` of each module in ``catalogue``."""
    return [one for name in modules() for one in entries_of(name)]


def modules() -> list[str]:
    """The names of the modules in ``catalogue``."""
    return sorted(module.name for module in pkgutil.iter_modules(tests.field.catalogue.__path__))


def entries_of(module: str) -> list[Entry]:
    """The ``ENTRIES`` of a module in ``catalogue``."""
    return list(importlib.import_module(f"tests.field.catalogue.{module}").ENTRIES)
