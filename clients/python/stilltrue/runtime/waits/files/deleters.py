"""Child processes that may delete or rename a file, for which a thread of this process polls: a cleaner, a rotation of logs.

Rules:

1. A child, or an orphan of the program, counts if its command line, or what it runs
   (:mod:`~stilltrue.runtime.introspection.linux.signal_senders`), names a command or function that deletes or renames files.
2. One that runs this program (a fork, or a process of ``multiprocessing``) counts if the program's own files mention that.
"""

from __future__ import annotations

import os
import re

from stilltrue.runtime.introspection.linux.child_processes import child_processes, orphans, process_at
from stilltrue.runtime.introspection.linux.signal_senders import command_line_of, texts_of
from stilltrue.runtime.waits.databases.source_search import Mentions

CHILDREN_MAX = 100
_FUNCTIONS = r"\bos\.(?:remove|unlink|renames?|replace|removedirs)\b|\.unlink\(|\brmtree\b|\bTemporaryDirectory\b"
_COMMANDS = r"(?:^|[\s\0;&|(`{/'\"])(?:rm|unlink|mv|shred|tmpwatch|tmpreaper|logrotate)(?=[\s\0;)'\"`]|$)|\s-delete\b"
_DELETES = re.compile(f"{_FUNCTIONS}|{_COMMANDS}".encode())
_OWN = Mentions(rf"{_FUNCTIONS}|[\"';&|]\s*(?:rm|unlink|mv)\s", own_only=True)


def child_may_delete() -> bool:
    """Whether a child process may delete a file."""
    own, itself, children = command_line_of("self"), process_at(os.getpid()), child_processes()
    orphaned = [] if itself is None else orphans(itself.started, {one.pid for one in children})
    for child in (*children, *orphaned)[:CHILDREN_MAX]:
        line = command_line_of(child.pid)
        if line == own or b"multiprocessing" in line:
            if not _OWN.search() or _OWN.found:
                return True
        elif any(map(_DELETES.search, (line, *texts_of(child.pid, line)))):
            return True
    return False
