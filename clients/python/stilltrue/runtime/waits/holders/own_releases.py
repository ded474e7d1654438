"""Whether a file of the program releases only what it has acquired itself, by ``finally: lock.release()``.

What can still run are the functions that exist, what is running or suspended, and the functions within these. The garbage
collector can list them; if it cannot, the answer is no.
"""

from __future__ import annotations

import re

from stilltrue.runtime.introspection.frames import frames_of_threads
from stilltrue.runtime.waits.databases.source_search import Mentions
from stilltrue.runtime.waits.holders.try_finally import releases_only_in_finally
from stilltrue.runtime.waits.orphaned_locks.census import codes_within, take_census

_RELEASE = "release"
_BY_TEXT_OR_EXIT = r"\.__exit__\b|['\"](?:release|__exit__)['\"]"
_RELEASES = rf"\.release\b|{_BY_TEXT_OR_EXIT}"
_NO_BRACKET = re.compile(_BY_TEXT_OR_EXIT.encode())


def mentions_of_releases() -> Mentions:
    """A search of the program's own files for what may release a lock that another process has acquired."""
    return Mentions(
        _RELEASES, own_only=True, unless=lambda file, text: not _NO_BRACKET.search(text) and releases_only_its_own(file)
    )


def releases_only_its_own(file: str) -> bool:
    """Whether all code of ``file`` that mentions ``release`` is such a bracket; False if it cannot be found."""
    census = take_census()
    if census is None or census.hidden:
        return False
    frames = [frame for frames in frames_of_threads().values() for frame in frames]
    frames += [frame for _, frame in census.suspended]
    codes = {*(one.__code__ for one in census.functions), *(frame.f_code for frame in frames)}
    own = [one for one in codes if one.co_filename == file and any(_RELEASE in within.co_names for within in codes_within(one))]
    return bool(own) and all(map(releases_only_in_finally, own))
