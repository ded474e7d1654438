"""Writes docs/field.md from the entries of the catalogue: ``.venv/bin/python -m tests.field.table``."""

from __future__ import annotations

from pathlib import Path

from tests.field.entry import Entry, entries

DOCUMENT = Path(__file__).parents[2] / "docs" / "field.md"
_PROGRAMS = "https://github.com/stilltrue/stilltrue/blob/main/tests/field/programs"
_INTRODUCTION = """# Field catalogue

Published deadlocks, each rebuilt as a small program with the library it was reported for (and the real server, where there is
one), and each with near misses: programs that look alike but do not deadlock. `make field` runs all of them under a real
detector. The core of the answer must be exactly the parties in the table, with file and line, and no party of a near miss may
be reported.

One program alone, after `make setup`: `.venv/bin/pytest tests/field -m field -k tiledb_1757`. To ask about it yourself, with a
`stilltrue serve` running: `.venv/bin/python tests/field/programs/tiledb_1757.py stuck`. Ctrl-C ends it; where threads are stuck
it takes two, since Python waits for them at exit. Many programs end when their standard input does, so in the background give
them one: `sleep 600 | .venv/bin/python ...`. A program of several processes takes the process as well (`file_lock.py stuck
stock` and, in another terminal, `file_lock.py stuck orders`). They meet in the folder that `FIELD_MEETING` names in the
environment of each, which must be empty at the start (`export FIELD_MEETING=/tmp/meeting`; else it is the current one).
Those with a database take its URI from `FIELD_POSTGRES` or `FIELD_REDIS`, and have a process `probe`.

Written by `.venv/bin/python -m tests.field.table`; do not edit. Comments in each program mark the lines
of the parties in the core.

| source | what happens | library | predicate | the core | near misses, which are not reported |
|---|---|---|---|---|---|
"""


def document() -> str:
    """The page."""
    return _INTRODUCTION + "".join(f"{_row(one)}\n" for one in entries())


def _row(entry: Entry) -> str:
    core = sorted(entry.expected("core").items(), key=lambda item: (item[0][1:], item[0][0]))
    places = [
        (f"{service}, line {line}" if line else service) + (f" ({count} parties)" if count > 1 else "")
        for (service, _, line), count in core
    ]
    cells = (
        f"[{entry.source}]({entry.url})" if entry.url else entry.source,
        entry.what,
        entry.library,
        f"`{entry.predicate}`",
        f"[{entry.path.name}]({_PROGRAMS}/{entry.path.name}): {'; '.join(places)}",
        "; ".join(entry.near.values()),
    )
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


if __name__ == "__main__":
    DOCUMENT.write_text(document())
