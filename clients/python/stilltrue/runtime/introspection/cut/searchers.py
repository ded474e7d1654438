"""What is found between cuts, since it takes too long for one: who owns, holds or may end what others wait for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

from stilltrue.protocol.report import Hold
from stilltrue.runtime.introspection.cut.client_interceptors import awaits_call
from stilltrue.runtime.introspection.one_reader import reading
from stilltrue.runtime.introspection.tasks import Task
from stilltrue.runtime.parties import Parties
from stilltrue.runtime.waits.databases import redis_holders
from stilltrue.runtime.waits.databases.sessions import Sessions
from stilltrue.runtime.waits.files.holders import FileLocks
from stilltrue.runtime.waits.files.resolver import find_polled_files
from stilltrue.runtime.waits.orphaned_locks.locks import LocksLeftBehind
from stilltrue.runtime.waits.pipes.resolver import find_processes_at_pipes
from stilltrue.runtime.waits.pipes.work import OwnWork
from stilltrue.runtime.waits.process_end import OwnEnd
from stilltrue.runtime.waits.process_pools import workers as pool_workers
from stilltrue.runtime.waits.process_pools.executors import search_for_crashes
from stilltrue.runtime.waits.process_view import LiveProcessView
from stilltrue.runtime.waits.reachability.task_waits import TaskWaits
from stilltrue.runtime.waits.reachability.thread_waits import ThreadWaits
from stilltrue.runtime.waits.resolvers.locks import LOCK
from stilltrue.runtime.waits.semaphores.conditions import find_processes_at_conditions
from stilltrue.runtime.waits.semaphores.left import find_left_semaphores
from stilltrue.runtime.waits.shared_lock_holders import SharedLocks
from stilltrue.runtime.waits.streams import feeders
from stilltrue.runtime.waits.streams.readers import StreamReaders
from stilltrue.runtime.waits.streams.task_feeders import TaskFeeders
from stilltrue.runtime.waits.stuck_children import StuckChildren
from stilltrue.runtime.waits.wait import SeenWait


class Searchers:
    """The searchers of one process. A cut remembers what they should look into, and uses what they have found."""

    def __init__(self, parties: Parties) -> None:
        self._parties = parties
        self.sessions = Sessions()
        """Database connections and their owners."""
        self._own_end = OwnEnd()
        self._stuck_children = StuckChildren()
        self.own_work = OwnWork()
        """What this process does, for which others may wait at a pipe."""
        self.shared_locks = SharedLocks()
        """Multiprocessing's locks and their holders."""
        self.file_locks = FileLocks()
        """Locks on files and their holders."""
        self.left = LocksLeftBehind(parties)
        """Locks that no party but the known holders has."""
        self.reached = TaskWaits()
        """Tasks' waits for objects that only blocked tasks can reach."""
        self.signals = ThreadWaits()
        """Threads' waits for objects that only blocked threads can reach."""
        self.readers = StreamReaders()
        """Parties that alone may read a stream."""
        self.feeders = TaskFeeders()
        """Tasks that may write the next request of a call."""

    def view(self, now: float) -> LiveProcessView:
        """The process at a cut taken ``now`` (epoch), with what has been proved of it."""
        reached, signalled = self.reached.at_cut(), self.signals.at_cut()
        signals = {id(wait.on) for wait in signalled.values() if type(wait.on) is LOCK}
        left = {key: holders for key, holders in self.left.at_cut().items() if key not in signals}
        return LiveProcessView(self._parties, now, reached=reached, left=left, signalled=signalled)

    def remember(self, view: LiveProcessView) -> None:
        """Remember what needs a proof."""
        self.left.remember(view.needing_proof())
        self.signals.remember(view.unexplained(), self.left.has_failed)

    def remember_tasks(self, view: LiveProcessView, waits: Iterable[SeenWait], served: set[Task]) -> None:
        """Remember the tasks whose waits need a proof. ``waits``: those of blocked threads; ``served``: tasks that serve."""
        every = served | self.feeders.tasks() | feeders.tasks(view).keys() | self.reached.crossed()
        unexplained = view.unexplained_tasks(list(waits), every)
        self.reached.remember((task, future) for task, future in unexplained if not awaits_call(task))

    def holds(self, view: LiveProcessView) -> tuple[Hold, ...]:
        """Which party holds, or alone may provide, what parties of this or of other processes wait for."""
        process = self._parties.process
        return (
            *self.sessions.holds(view),
            *redis_holders.holds(view),
            *self.file_locks.holds(view),
            *self._own_end.holds(view),
            *self._stuck_children.holds(view),
            *self.shared_locks.holds(view),
            *feeders.holds(view, process),
            *self.own_work.holds(view),
            *pool_workers.holds(view),
            *self.readers.holds(view),
            *self.feeders.holds(view),
        )

    def search(self, now: float, stopped: Callable[[], bool] = lambda: False) -> bool:
        """Search, in the agent's own thread, ``now`` (epoch), until ``stopped``. Never raises.

        Returns whether a proof that is still missing will be tried again before long.
        """
        with reading(0.0) as alone:
            if alone:
                self._search(now, stopped)
        try:
            return any(one.is_due_soon() for one in (self.left, self.signals, self.reached))
        except Exception:  # noqa: BLE001 - the next cut tries it, too
            return False

    def _search(self, now: float, stopped: Callable[[], bool]) -> None:
        searches: tuple[Callable[[], object], ...] = (
            lambda: self.left.search(now),
            self.signals.search,
            self.reached.search,
            self.readers.search,
            self.feeders.search,
            find_polled_files,
            self.sessions.search,
            self._own_end.search,
            self._stuck_children.search,
            find_processes_at_pipes,
            find_processes_at_conditions,
            find_left_semaphores,
            search_for_crashes,
        )
        for search in searches:
            if stopped():
                return
            with suppress(Exception):  # doubt proves nothing
                search()
