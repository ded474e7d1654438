"""What a PostgreSQL server's processes wait for, as one reading of its views shows it. Pure: rows in, waits out.

Rules:

1. A process that waits for a lock waits for all the processes that block it (``pg_blocking_pids``): those that hold it, and
   those that asked before. One that is not a client's, or cannot be seen, or is a prepared transaction may end by itself.
2. A cycle of such waits within one server ends by itself: the server looks for it after ``deadlock_timeout``.
3. A process in a transaction with nothing to do waits for the client that has its connection; in any other state it is at work.
4. Timeouts that the server, the database or the role sets by default are deadlines. What a session has set for itself cannot
   be read: the client's agent looks for it, and here what a statement or a function of the database names is doubt.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from detector.probe.reading import Numbers, Reading
from stilltrue.model import PartyName, WaitNumber
from stilltrue.protocol.report import Hold, LocalWait, PartyTarget, ResourceTarget, Target
from stilltrue.runtime.seen.databases.names import link

IDLE_IN_TRANSACTION = ("idle in transaction", "idle in transaction (aborted)")
_UNITS_MS = {"us": 0.001, "": 1.0, "ms": 1.0, "s": 1_000.0, "min": 60_000.0, "h": 3_600_000.0, "d": 86_400_000.0}
_VALUE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(us|ms|s|min|h|d|)\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """One process of the server. Ages are in seconds, as of the reading.

    ``started``, ``state_changed`` and ``waiting_since`` tell one run, one state, one wait from the next. ``blockers``: who
    block it (None: it waits for no lock). ``ours``: it is a client's, of the database that is read, and not hidden.
    ``timeouts``: the defaults of its session, by name, in seconds (0: none). ``doubt``: why its waits may end otherwise.
    """

    pid: int
    started: str = ""
    state: str = ""
    state_changed: str = ""
    state_age: float = 0.0
    statement_age: float = 0.0
    transaction_age: float = 0.0
    waiting_since: str | None = None
    waiting_age: float = 0.0
    lock: str = ""
    blockers: tuple[int, ...] | None = None
    address: str = ""
    port: int = 0
    ours: bool = True
    timeouts: tuple[tuple[str, float], ...] = ()
    doubt: str = ""

    def remaining(self) -> float | None:
        """After how many seconds its wait ends by itself at the latest; None: never, by what is known (rule 4)."""
        limits = dict(self.timeouts)
        ages = {"transaction_timeout": self.transaction_age}
        if self.blockers is not None:
            ages |= {"lock_timeout": self.waiting_age, "statement_timeout": self.statement_age}
        else:
            ages |= {"idle_in_transaction_session_timeout": self.state_age}
        ends = [limits[name] - age for name, age in ages.items() if limits.get(name)]
        return max(0.0, min(ends)) if ends else None


class Backends:
    """Turns rows into waits; the same wait keeps its number from one reading to the next."""

    def __init__(self, process: str, network: str | None) -> None:
        """``process`` is the probe's name; ``network`` the server's, if it is our own: for clients on the loopback."""
        self._process = process
        self.network = network
        self._numbers = Numbers()

    def party(self, pid: int) -> PartyName:
        """The party that a process of the server is."""
        return PartyName(f"{self._process}/process-{pid}")

    def read(self, rows: Iterable[Backend], now: float) -> Reading:
        """What ``rows`` show, read ``now`` (epoch)."""
        known = {row.pid: row for row in rows if row.ours}
        cycle = on_cycles({pid: row.blockers or () for pid, row in known.items()})
        self._numbers.begin()
        waits: list[LocalWait] = []
        holds: list[Hold] = []
        for pid, row in sorted(known.items()):
            connection = link(pid, row.address, row.port, self.network)
            if connection is not None:
                holds.append(Hold(party=self.party(pid), resource=connection.server))
            among: tuple[Target, ...] = ()
            what, key = "", tuple[object, ...]((pid, row.started, row.state_changed))
            if row.blockers is not None and row.waiting_since is not None and pid not in cycle:
                among = tuple(PartyTarget(party=self.party(other)) for other in row.blockers if other in known)
                what, key = row.lock, (pid, row.started, row.waiting_since, row.blockers)
            elif row.blockers is None and row.state in IDLE_IN_TRANSACTION and connection is not None:
                among, what = (ResourceTarget(resource=connection.client),), f"its client; it is {row.state}"
            if among:
                waits.append(self._wait(row, among, what, self._numbers.of(key, now), now))
        return Reading(
            waits=tuple(waits),
            holds=tuple(holds),
            doubts={self.party(row.pid): row.doubt for row in known.values() if row.doubt},
        )

    def _wait(
        self, row: Backend, among: tuple[Target, ...], what: str, known: tuple[WaitNumber, float], now: float
    ) -> LocalWait:
        left = row.remaining()
        return LocalWait(
            waiter=self.party(row.pid),
            number=known[0],
            among=among,
            needs=len(among),
            deadline=None if left is None else now + left,
            since=known[1],
            uncoloured=True,
            what=what,
        )


def on_cycles(blockers: Mapping[int, Sequence[int]]) -> set[int]:
    """The processes that wait, directly or not, for themselves (rule 2)."""
    found = set()
    for pid in blockers:
        todo, seen = list(blockers[pid]), set[int]()
        while todo:
            other = todo.pop()
            if other not in seen:
                seen.add(other)
                todo.extend(blockers.get(other, ()))
        if pid in seen:
            found.add(pid)
    return found


def seconds(value: str) -> float:
    """A timeout as PostgreSQL writes it (``0``, ``5000``, ``5s``, ``1min``), in seconds; unreadable ones are the shortest."""
    found = _VALUE.fullmatch(value)
    return 0.001 if found is None else float(found[1]) * _UNITS_MS[found[2]] / 1_000
