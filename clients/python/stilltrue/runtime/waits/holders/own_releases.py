"""Whether a file of the program releases only what it has acquired itself, on every path or by ``finally: lock.release()``.

What can still run are the functions that exist, what is running or suspended, and the functions within these. The garbage
collector can list them; if it cannot, the answer is no. Other processes mostly run the same program, and may run what is over
here, such as a module's own statements: so the answer is no, too, if the file's text has a mention in any other line.
"""

from __future__ import annotations

import re

from stilltrue.runtime.bytecode.instructions import instructions, line_of
from stilltrue.runtime.introspection.frames import frames_of_threads
from stilltrue.runtime.waits.databases.source_search import Mentions
from stilltrue.runtime.waits.holders.try_finally import releases_only_in_finally
from stilltrue.runtime.waits.orphaned_locks.balance import releases_only_own
from stilltrue.runtime.waits.orphaned_locks.census import codes_within, take_census

_RELEASE = "release"
_BY_NAME, _BY_TEXT, _BY_EXIT = r"\.release\b", r"['\"]release['\"]", r"\.__exit__\b|['\"]__exit__['\"]"
_PERHAPS_BRACKET = re.compile(_BY_NAME.encode(), re.I)


def mentions_of_releases(*, exits: bool) -> Mentions:
    """A search of the program's own files for what may release a lock that another process has acquired.

    ``exits``: or may do so by ``lock.__exit__()``.
    """
    by_others = f"{_BY_TEXT}|{_BY_EXIT}" if exits else _BY_TEXT
    no_bracket = re.compile(by_others.encode(), re.I)

    def is_harmless(file: str, text: bytes) -> bool:
        return not no_bracket.search(text) and _releases_only_its_own(file, text)

    return Mentions(f"{_BY_NAME}|{by_others}", own_only=True, unless=is_harmless)


def _releases_only_its_own(file: str, text: bytes) -> bool:
    """Whether all code of a file that mentions ``release`` acquires what it releases; False if some of it cannot be found."""
    census = take_census()
    if census is None or census.hidden:
        return False
    frames = [frame for frames in frames_of_threads().values() for frame in frames]
    frames += [frame for _, frame in census.suspended]
    codes = {*(one.__code__ for one in census.functions), *(frame.f_code for frame in frames)}
    own = [one for one in codes if one.co_filename == file and any(_RELEASE in within.co_names for within in codes_within(one))]
    every = (one for code in own for within in codes_within(code) for one in instructions(within))
    read = {line_of(one) for one in every if one.argval == _RELEASE}
    written = {text.count(b"\n", 0, one.start()) + 1 for one in _PERHAPS_BRACKET.finditer(text)}
    return written <= read and all(releases_only_in_finally(code) or releases_only_own(code) for code in own)
