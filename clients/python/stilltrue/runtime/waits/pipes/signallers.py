"""What may send a signal to a child besides the parties of this process: a watchdog, what it has left behind, or its alarm.

Rules:

1. A process may do so if its command line has the child's process id as a separate number; one that the program has started,
   also if it may find the id otherwise (:mod:`~stilltrue.runtime.introspection.linux.signal_senders`).
2. So may an orphan of the child's process group that began after the child: it may have asked for its parent's id.
3. So may another child that runs this program (a fork, or a process of ``multiprocessing``), which has no command line of its
   own, if the program's own files mention sending signals to another process than the one that sends them.
4. Linux does not show an alarm. A child may have one if the program's own files mention it (``preexec_fn=lambda: alarm(60)``,
   ``["perl", "-e", "alarm 60; exec @ARGV"]``). An alarm without a handler in a child's own program is assumed not to exist.
5. Nor does Linux show that a child is killed when the thread that started it ends (``prctl(PR_SET_PDEATHSIG)``). So a mention
   of that counts, too, if this thread is not the main one and may go on: most such children end with the process.
6. A child that has a controlling terminal which is not this process's gets signals from whoever has that terminal's other
   side, often this process: it writes Ctrl-C there, or closes it (``pty.fork()``).
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from stilltrue.runtime.introspection.linux.child_processes import (
    all_processes,
    child_processes,
    orphans,
    parent_of,
    process_at,
    starter_of,
    terminal_of,
)
from stilltrue.runtime.introspection.linux.signal_senders import SENDS_TO_OTHERS, command_line_of, is_told, may_find
from stilltrue.runtime.waits.databases.source_search import Mentions
from stilltrue.runtime.waits.pipes.process_trees import stands_still

_SENDS = Mentions(SENDS_TO_OTHERS, own_only=True)
_ALARMS = Mentions(r"\balarm(\s*\(|\s+(\d|shift\b|[$@]))|\bsetitimer\b", own_only=True)
_ENDS_WITH_THREADS = Mentions(r"pdeathsig|\bprctl\s*\(\s*1\b", own_only=True)


def may_be_signalled(chain: Sequence[int]) -> bool:
    """Whether another process, or an alarm, may interrupt a child, or one of those that it waits for (``chain``)."""
    if any(is_told(command_line_of(one), chain) for one in all_processes() if one not in chain and one != os.getpid()):
        return True
    has_alarm = not _ALARMS.search() or bool(_ALARMS.found)
    if has_alarm or any(map(_has_another_terminal, chain)):
        return True
    return _has_left_others(chain) or _started_signal(chain) or any(map(_may_end_with_its_starter, chain))


def _has_another_terminal(child: int) -> bool:
    """Rule 6."""
    return terminal_of(child) not in ("0", terminal_of(os.getpid()))


def _has_left_others(chain: Sequence[int]) -> bool:
    child = process_at(chain[0])
    return child is None or bool(orphans(child.started, chain, group_of=chain[0]))


def _may_end_with_its_starter(child: int) -> bool:
    """Rule 5."""
    if _ENDS_WITH_THREADS.search() and not _ENDS_WITH_THREADS.found:
        return False
    thread = starter_of(child) if parent_of(child) == os.getpid() else os.getpid()
    return thread is None or (thread != os.getpid() and not stands_still(thread))


def _started_signal(chain: Sequence[int]) -> bool:
    """Whether another process that the program has started may signal one of the chain (rules 1 and 3)."""
    own, itself, children = command_line_of(os.getpid()), process_at(os.getpid()), child_processes()
    known = {*chain, *(child.pid for child in children)}
    orphaned = [] if itself is None else orphans(itself.started, known)
    others = [(one.pid, command_line_of(one.pid)) for one in (*children, *orphaned) if one.pid not in chain]
    alike = [line == own or b"multiprocessing" in line for _, line in others]
    if any(may_find(pid, line, chain) for (pid, line), same in zip(others, alike, strict=True) if not same):
        return True
    return any(alike) and (not _SENDS.search() or bool(_SENDS.found))
