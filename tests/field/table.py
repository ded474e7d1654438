"""Writes docs/field.md from the entries of the catalogue: ``.venv/bin/python -m tests.field.table``."""

from __future__ import annotations

from pathlib import Path

from tests.field.entry import Entry, entries_of

DOCUMENT = Path(__file__).parents[2] / "docs" / "field.md"
KINDS = {
    "Calls between services": ("rpc", "rpc_aio"),
    "Event loops and tasks": ("loops", "async_libraries"),
    "Locks and semaphores": ("locks",),
    "Events, queues, barriers and futures": ("signals",),
    "Thread pools, servers and imports": ("executors",),
    "Connection pools": ("pools",),
    "Databases": ("databases",),
    "Files": ("files",),
    "Child processes and multiprocessing": ("processes",),
    "Pools of processes": ("process_pools",),
    "What is never given back": ("left",),
    "Inside libraries": ("libraries", "published"),
    "Waits that the program declares": ("swarms",),
}
"""The kinds of deadlocks, each with its modules of ``catalogue``."""
_PROGRAMS = "https://github.com/stilltrue/stilltrue/blob/main/tests/field/programs"
_INTRODUCTION = """# Field catalogue

{count} deadlocks that people have published or that are widely known. Each is rebuilt as a small program, with the library it
was reported for, and the real server, where there is one. `make field` runs them under a real detector and compares the answers
with the truth.

Look for the row that resembles your program:

| kind | deadlocks |
|---|---|
"""
_READING = """
A row has

- what happens, with which library, and where it was reported;
- the program, and the parties in the core of the answer: their service and their line. The core must be exactly these parties;
- the near misses: variants of the program that look alike but do not deadlock. No party of a near miss may be reported.

The predicate that holds is `deadlock` where a row names no other.
"""
_COLUMNS = "| what happens | the program, and its core | near misses, which are not reported |\n|---|---|---|\n"
_RUNNING = """
## Running them

All of them: `make field` (about two minutes, after `make setup`). One, with its near misses:
`.venv/bin/pytest tests/field -m field -k tiledb_1757`. To ask about one yourself:

```sh
stilltrue serve                                                  # in another terminal
.venv/bin/python tests/field/programs/tiledb_1757.py stuck       # "stuck", or the name of a near miss
stilltrue ask deadlock                                           # in a third one
```

- Ctrl-C ends the program; where threads are stuck it takes two, since Python waits for them at exit.
- Many programs end when their standard input does. In the background give them one: `sleep 600 | .venv/bin/python ...`. One
  with stuck threads goes on until you end it by `kill`; then `stilltrue forget --all`.
- A program of several processes takes the process as well: `file_lock.py stuck stock` and, in another terminal,
  `file_lock.py stuck orders`. They meet in the folder that `FIELD_MEETING` names, which must be empty at the start:
  `export FIELD_MEETING=/tmp/meeting` in both (else it is the current folder).
- A program with a database takes its URI from `FIELD_POSTGRES` or `FIELD_REDIS`, and has a process `probe`.

This page is written by `.venv/bin/python -m tests.field.table`; do not edit it. Comments in each program mark the lines of the
parties in the core.
"""


def document() -> str:
    """The page."""
    found = {kind: [one for module in modules for one in entries_of(module)] for kind, modules in KINDS.items()}
    kinds = "".join(f"| [{kind}](#{_anchor(kind)}) | {len(of_kind)} |\n" for kind, of_kind in found.items())
    tables = "".join(_table(kind, of_kind) for kind, of_kind in found.items())
    return _INTRODUCTION.format(count=sum(map(len, found.values()))) + kinds + _READING + tables + _RUNNING


def _anchor(title: str) -> str:
    return title.lower().replace(",", "").replace(" ", "-")


def _table(kind: str, of_kind: list[Entry]) -> str:
    rows = "".join(f"{_row(one)}\n" for one in of_kind)
    return f"\n## {kind}\n\n{_COLUMNS}{rows}"


def _row(entry: Entry) -> str:
    core = sorted(entry.expected("core").items(), key=lambda item: (item[0][1:], item[0][0]))
    places = [
        (f"{service}, line {line}" if line else service) + (f" ({count} parties)" if count > 1 else "")
        for (service, _, line), count in core
    ]
    source = f", [{entry.source}]({entry.url})" if entry.url else ""
    predicate = "" if entry.predicate == "deadlock" else f" `{entry.predicate}`"
    cells = (
        f"{entry.what} *{entry.library}{source}*{predicate}",
        f"[{entry.path.name}]({_PROGRAMS}/{entry.path.name}): {'; '.join(places)}",
        "; ".join(entry.near.values()),
    )
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


if __name__ == "__main__":
    DOCUMENT.write_text(document())
