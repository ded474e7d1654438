"""What may send a signal to a child besides the parties of this process: a watchdog, what it has left behind, or its alarm.

Rules:

1. A process may do so if its command line has the child's process id as a separate number. Ids below :data:`SMALL` are also
   counts and levels, so with such an id the command line must name ``kill``, too.
2. So may an orphan of the child's process group that began after the child: it may have asked for its parent's id.
3. So may another child that runs this program (a fork, or a process of ``multiprocessing``), which has no command line of its
   own, if the program's own files mention sending signals, and the ids of processes.
4. Linux does not show an alarm. A child may have one if the program's own files mention it (``preexec_fn=lambda: alarm(60)``,
   ``["perl", "-e", "alarm 60; exec @ARGV"]``). An alarm without a handler in a child's own program is assumed not to exist.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from stilltrue.runtime.introspection.linux.child_processes import all_processes, child_processes, orphans, process_at
from stilltrue.runtime.waits.databases.source_search import Mentions

SMALL = 300
TEXT_MAX = 10_000
_KILLS = re.compile(rb"kill|send_signal|terminate")
_PROC = Path("/proc")
_SENDS = Mentions(r"\bos\.kill|\bpidfd_send_signal\b|\bimport\b[^\n]*\bkill|\bpsutil\b", own_only=True)
_TELLS = Mentions(r"\.pid\b", own_only=True)
_ALARMS = Mentions(r"\balarm(\s*\(|\s+(\d|shift\b|[$@]))|\bsetitimer\b", own_only=True)


def may_be_signalled(chain: Sequence[int]) -> bool:
    """Whether another process, or an alarm, may interrupt a child, or one of those that it waits for (``chain``)."""
    number = re.compile(rb"(?<![\w.:-])(?:%s)(?![\w.:-])" % b"|".join(b"%d" % one for one in chain))
    small = min(chain) < SMALL
    others = (_command_line_of(one) for one in all_processes() if one not in chain and one != os.getpid())
    if any(number.search(line) and (not small or _KILLS.search(line)) for line in others):
        return True
    return _has_left_others(chain) or _runs_alike(chain) or not _ALARMS.search() or bool(_ALARMS.found)


def _has_left_others(chain: Sequence[int]) -> bool:
    child = process_at(chain[0])
    return child is None or bool(orphans(child.started, chain, group_of=chain[0]))


def _runs_alike(chain: Sequence[int]) -> bool:
    own = _command_line_of(os.getpid())
    lines = [_command_line_of(one.pid) for one in child_processes() if one.pid not in chain]
    if not any(line == own or b"multiprocessing" in line for line in lines):
        return False
    complete = _SENDS.search() and _TELLS.search()
    return not complete or bool(_SENDS.found and _TELLS.found)


def _command_line_of(pid: int) -> bytes:
    try:
        with (_PROC / str(pid) / "cmdline").open("rb") as file:
            return file.read(TEXT_MAX)
    except OSError:  # it has ended
        return b""
