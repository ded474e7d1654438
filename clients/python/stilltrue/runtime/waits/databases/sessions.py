"""Finds the owners of database connections in the frames of threads and tasks at the cut, and again at the second look.

Rules:

1. A thread or task owns a connection if a frame of its application code refers to it, or to a cursor, transaction or session on
   it. If a transaction is open and no statement is running, the server's process waits for one of the owners. So it does
   outside a transaction, if the session has an advisory lock, which only the server knows: it may have one if the program
   mentions such locks anywhere. Django's connection has its thread as owner, since Django lets no other use it.
2. Any other party that can reach the connection may continue its transaction or end it: at the second look each is a way out,
   whatever its code mentions; so is one that can reach what an owner's object works through, such as its session's connection.
   So is an object through which an owner reaches the connection, other than a web framework's: other parties may have it.
3. A session is in doubt if its settings may end its waits by themselves. The server does not show another session's settings,
   so a mention of such a setting in the connection parameters or in a file of the program is enough.
"""

from __future__ import annotations

import gc
import os
import re
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import Any
from weakref import ref

from stilltrue.model import PartyName
from stilltrue.protocol.report import Hold
from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.origins import is_application, is_of_http_library
from stilltrue.runtime.introspection.threads_and_tasks import Place
from stilltrue.runtime.look.budget import Budget
from stilltrue.runtime.look.ways_out.reach import SKIPPED_CLASSES, is_open, named_by
from stilltrue.runtime.waits.databases.drivers import (
    IDLE_IN_TRANSACTION,
    TIMEOUTS,
    Status,
    connections_in,
    is_library,
    is_loaded,
    link_of,
    settings_of,
    status_of,
    works_through,
)
from stilltrue.runtime.waits.databases.source_search import Mentions
from stilltrue.runtime.waits.process_view import LiveProcessView
from stilltrue.runtime.waits.wait import Ender

SECONDS_MAX = 0.01
"""Processor time at one cut; beyond it no connection has an owner."""
OBJECTS_MAX = 500
"""Number of objects to search from one variable of an owner."""
BUSY_CODE = "asyncpg/"
_TIMEOUT = rf"{'|'.join(TIMEOUTS)}|\bset\s+(?:local\s+|session\s+)?\S*_timeout\b"


@dataclass(slots=True, eq=False)
class _Owners:
    """A connection, the threads and tasks whose frames refer to it, and the objects through which they do."""

    connection: Any
    who: set[Ender] = field(default_factory=set)
    things: dict[int, Any] = field(default_factory=dict)


class Sessions:
    """The connections of one process."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._of: dict[PartyName, tuple[ref[Any], ...]] = {}
        self._timeouts = Mentions(_TIMEOUT)
        self._advisory_locks = Mentions("advisory")

    def holds(self, view: LiveProcessView) -> tuple[Hold, ...]:
        """Rule 1: the parties that the servers' processes wait for at a cut."""
        of: dict[PartyName, tuple[ref[Any], ...]] = {}
        try:
            return tuple(self._read(view, of)) if is_loaded() else ()
        finally:
            self._of = of  # in one step: a look in another thread may read it

    def search(self) -> None:
        """Search the program's files for advisory locks; not done at a cut, since it takes long once."""
        if is_loaded():
            self._advisory_locks.search()

    def _read(self, view: LiveProcessView, of: dict[PartyName, tuple[ref[Any], ...]]) -> Iterable[Hold]:
        owners: dict[int, _Owners] = {}
        busy: set[int] = set()
        budget = Budget(SECONDS_MAX)
        for stack in (*view.stacks().values(), *view.stacks_of_tasks().values()):
            for frame in stack.frames:
                is_driver = BUSY_CODE in frame.f_code.co_filename
                if not is_driver and not _is_users(frame):
                    continue
                for thing in variables_of(frame).values():
                    found = _own(owners, stack.who, thing)
                    busy.update(map(id, found) if is_driver else ())
                if not budget.step():
                    return ()
        for ident, thing in compat.connections_of_threads():
            _own(owners, ident, thing)
        return self._claimed(owners.values(), busy, view, of)

    def _claimed(
        self, owners: Iterable[_Owners], busy: set[int], view: LiveProcessView, of: dict[PartyName, tuple[ref[Any], ...]]
    ) -> Iterable[Hold]:
        for one in owners:
            connection = one.connection
            parties = [view.party_of(who) for who in one.who]
            known = tuple(dict.fromkeys(party for party in parties if party is not None))
            status = Status.ACTIVE if id(connection) in busy else status_of(connection)
            open_ones = (*IDLE_IN_TRANSACTION, Status.ACTIVE, *((Status.IDLE,) if self._advisory_locks.found else ()))
            link = link_of(connection) if status in open_ones else None
            if link is None:  # neither does the database wait, nor does a party wait for it
                continue
            for party in known:
                of[party] = (*of.get(party, ()), *_weakly(one.things.values()))
            if None not in parties and status is not Status.ACTIVE:
                yield from (Hold(party=party, resource=link.client) for party in sorted(known))

    def of(self, party: PartyName | None) -> tuple[Any, ...]:
        """The objects through which a party owned connections that count (rule 1) at the newest cut."""
        weak = () if party is None else self._of.get(party, ())
        return tuple(connection for one in weak if (connection := one()) is not None)

    def doubt_of(self, party: PartyName | None) -> str:
        """Rule 3: why waits on a party's connections may end by themselves, as text; empty: they do not."""
        connections = {id(one): one for thing in self.of(party) for one in connections_in(thing)}.values()
        if not connections:
            return ""
        for connection in connections:
            named = next((name for name in TIMEOUTS if name in settings_of(connection)), None)
            if named is not None:
                return f"its connection to the database was opened with {named}"
        return self._doubt_of_program()

    def _doubt_of_program(self) -> str:
        options = os.environ.get("PGOPTIONS", "")
        if re.search(_TIMEOUT, options, re.I):
            return f"PGOPTIONS is {options!r}"
        is_complete = self._timeouts.search()
        if self._timeouts.found:
            return f"{self._timeouts.found}, so the session may have such a timeout"
        return "" if is_complete else "not all files of the program have been searched for session settings yet"

    def shared(self, place: Place) -> Mapping[int, str]:
        """Rule 2: the party's connections that other objects of it also reach, each with the variable that refers to these."""
        wanted = {id(one) for thing in self.of(place.party) for one in connections_in(thing)}
        found: dict[int, str] = {}
        for frame in place.frames if wanted else ():
            if _is_users(frame):
                for name, thing in variables_of(frame).items():
                    found.update(dict.fromkeys(_inside(thing, wanted), name))
        return found


def _own(owners: dict[int, _Owners], who: Ender, thing: Any) -> tuple[Any, ...]:
    """Note ``who`` as an owner of the connections that ``thing`` is or works on; return these."""
    found = connections_in(thing)
    for connection in found:
        known = owners.setdefault(id(connection), _Owners(connection))
        known.who.add(who)
        through = works_through(thing) if compat.thread_of_connection(thing) is None else [connection]
        known.things.update((id(one), one) for one in through)
    return found


def _weakly(things: Iterable[Any]) -> Iterable[ref[Any]]:
    """Weak references to these objects, or to the connections of one whose class does not support them."""
    for thing in things:
        try:
            yield ref(thing)
        except TypeError:
            yield from (ref(connection) for connection in connections_in(thing))


def _is_users(frame: FrameType) -> bool:
    """Whether a frame belongs to the application and not to a driver or pool."""
    return is_application(frame.f_code) and not is_library(str(frame.f_globals.get("__name__", "")))


def _inside(root: Any, wanted: set[int]) -> set[int]:
    """The wanted connections that are found through an object which others may have for another reason.

    A collection, a partial, an exit stack and a web framework's request only hand on what they have: who else has one is found
    at the second look.
    """
    found: set[int] = set()
    seen: dict[int, Any] = {}
    todo = deque([(root, False)])
    while todo and len(seen) < OBJECTS_MAX:
        thing, shared = todo.popleft()
        if id(thing) in seen or issubclass(type(thing), SKIPPED_CLASSES) or compat.thread_of_connection(thing) is not None:
            continue
        seen[id(thing)] = thing  # keeps it alive, or its identity could be reused
        connections = connections_in(thing)
        if connections:
            found.update({id(one) for one in connections if id(one) in wanted} if shared else ())
        elif not is_library(type(thing).__module__):
            near = named_by(thing)
            shared = shared or not (near is not None or _hands_on(type(thing)))
            todo.extend((one, shared) for one in (near if near is not None else _referents(thing)))
    return found


def _hands_on(kind: type) -> bool:
    return compat.module_of(kind) == "contextlib" or is_of_http_library(kind)


def _referents(thing: Any) -> Iterable[Any]:
    return gc.get_referents(thing) if is_open(thing) else ()
