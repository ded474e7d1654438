"""Derives the waits of a PostgreSQL server's processes from one reading of its views. Pure: rows in, waits out.

Rules:

1. A process that waits for a lock waits for all processes that block it (``pg_blocking_pids``): the holders, and those that
   asked before it. One that is not a client backend, is hidden, or is a prepared transaction may end by itself.
2. A cycle of such waits within one server ends by itself: the server detects it after ``deadlock_timeout``.
3. A process that is idle in a transaction waits for the client of its connection. So does one that is idle outside a
   transaction and blocks another: it has an advisory lock of its session. In any other state it is at work.
4. Default timeouts of the server, the database or the role are deadlines. A session's own settings cannot be read: the
   client's agent looks for them, and here a statement or a function of the database that names a timeout is doubt.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from detector.probe.reading import Numbers, Reading
from stilltrue.model import PartyName, WaitNumber
from stilltrue.protocol.report import Hold, LocalWait, PartyTarget, ResourceTarget, Target
from stilltrue.runtime.waits.databases.names import link

IDLE = "idle"
IDLE_IN_TRANSACTION = ("idle in transaction", "idle in transaction (aborted)")
_UNITS_MS = {"us": 0.001, "": 1.0, "ms": 1.0, "s": 1_000.0, "min": 60_000.0, "h": 3_600_000.0, "d": 86_400_000.0}
_VALUE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(us|ms|s|min|h|d|)\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """One process of the server. Ages are in seconds, as of the reading.

    ``started``, ``state_changed`` and ``waiting_since`` distinguish its runs, states and waits. ``blockers``: the processes
    that block it (None: it waits for no lock). ``ours``: a client backend of the database that is read, and not hidden.
    ``timeouts``: its session's defaults by name, in seconds (0: none). ``doubt``: why its waits may end otherwise.
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
        """Seconds until a timeout ends its wait at the latest; None if no timeout is known (rule 4)."""
        limits = dict(self.timeouts)
        ages = {"transaction_timeout": self.transaction_age}
        if self.state == IDLE:
            ages = {"idle_session_timeout": self.state_age}
        elif self.blockers is not None:
            ages |= {"lock_timeout": self.waiting_age, "statement_timeout": self.statement_age}
        else:
            ages |= {"idle_in_transaction_session_timeout": self.state_age}
        ends = [limits[name] - age for name, age in ages.items() if limits.get(name)]
        return max(0.0, min(ends)) if ends else None


class Backends:
    """Converts rows to waits; a wait keeps its number across readings."""

    def __init__(self, process: str, network: str | None) -> None:
        """``process``: the probe's name; ``network``: the server's, if it is our own (for clients on loopback)."""
        self._process = process
        self.network = network
        self._numbers = Numbers()

    def party(self, pid: int) -> PartyName:
        """The party name of a server process."""
        return PartyName(f"{self._process}/process-{pid}")

    def read(self, rows: Iterable[Backend], now: float) -> Reading:
        """Convert ``rows``, read ``now`` (epoch), to waits and holds."""
        known = {row.pid: row for row in rows if row.ours}
        cycle = on_cycles({pid: row.blockers or () for pid, row in known.items()})
        blocking = {other for row in known.values() for other in row.blockers or ()}
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
            elif (
                row.blockers is None
                and connection is not None
                and (row.state in IDLE_IN_TRANSACTION or (row.state == IDLE and pid in blocking))
            ):
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
    """The processes that wait, directly or indirectly, for themselves (rule 2)."""
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
    """Convert a PostgreSQL timeout (``0``, ``5000``, ``5s``, ``1min``) to seconds; an unreadable one becomes 1 ms."""
    found = _VALUE.fullmatch(value)
    return 0.001 if found is None else float(found[1]) * _UNITS_MS[found[2]] / 1_000
