"""Who has which connection to a database: read from the frames of threads and tasks at the cut, searched at the second look.

Rules:

1. A connection belongs to everybody in whose frames of the application it is named, or a cursor, transaction or session on it.
   With a transaction open and no statement under way, the server's process waits for one of them.
2. Whoever else can reach the connection may go on with its transaction, or end it: at the second look each is a way out,
   whatever its code says. So is an object that its owner has besides: others may have that, too.
3. A session whose settings may end its waits by themselves is in doubt. They cannot be asked of another session, so it is
   enough that a setting is named where the session was begun, or in a file of the program.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import Any
from weakref import ref

from stilltrue.model import PartyName
from stilltrue.protocol.report import Hold
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.origins import is_application
from stilltrue.runtime.introspection.places import Place
from stilltrue.runtime.look.budget import Budget
from stilltrue.runtime.look.enders.reach import PASSED_BY, is_open, named_by
from stilltrue.runtime.seen.databases.drivers import (
    IDLE_IN_TRANSACTION,
    TIMEOUTS,
    Status,
    connections_in,
    is_library,
    is_loaded,
    link_of,
    settings_of,
    status_of,
)
from stilltrue.runtime.seen.databases.mentions import Mentions
from stilltrue.runtime.seen.scene import LiveScene
from stilltrue.runtime.seen.wait import Ender

SECONDS_MAX = 0.01
"""Processor time at one cut; beyond it nobody is said to have a connection."""
OBJECTS_MAX = 500
"""Objects that are walked through from one variable of an owner."""
BUSY_CODE = "asyncpg/"


@dataclass(slots=True, eq=False)
class _Owners:
    """A connection: in whose frames it is named, and by what."""

    connection: Any
    who: set[Ender] = field(default_factory=set)
    things: dict[int, Any] = field(default_factory=dict)


class Sessions:
    """The connections of one process."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._of: dict[PartyName, tuple[ref[Any], ...]] = {}
        self._mentions = Mentions(TIMEOUTS)

    def holds(self, scene: LiveScene) -> tuple[Hold, ...]:
        """Rule 1: for whom the servers' processes wait, at a cut."""
        of: dict[PartyName, tuple[ref[Any], ...]] = {}
        try:
            return tuple(self._read(scene, of)) if is_loaded() else ()
        finally:
            self._of = of  # at once: a look in another thread may read it

    def _read(self, scene: LiveScene, of: dict[PartyName, tuple[ref[Any], ...]]) -> Iterable[Hold]:
        owners: dict[int, _Owners] = {}
        busy: set[int] = set()
        budget = Budget(SECONDS_MAX)
        for stack in (*scene.stacks().values(), *scene.stacks_of_tasks().values()):
            for frame in stack.frames:
                is_driver = BUSY_CODE in frame.f_code.co_filename
                if not is_driver and not _is_users(frame):
                    continue
                for thing in variables_of(frame).values():
                    for connection in connections_in(thing):
                        known = owners.setdefault(id(connection), _Owners(connection))
                        known.who.add(stack.who)
                        known.things[id(thing)] = thing
                        busy.update((id(connection),) if is_driver else ())
                if not budget.step():
                    return ()
        return self._claimed(owners.values(), busy, scene, of)

    def _claimed(
        self, owners: Iterable[_Owners], busy: set[int], scene: LiveScene, of: dict[PartyName, tuple[ref[Any], ...]]
    ) -> Iterable[Hold]:
        for one in owners:
            connection = one.connection
            parties = [scene.party_of(who) for who in one.who]
            known = tuple(dict.fromkeys(party for party in parties if party is not None))
            status = Status.ACTIVE if id(connection) in busy else status_of(connection)
            link = link_of(connection) if status in (*IDLE_IN_TRANSACTION, Status.ACTIVE) else None
            if link is None:  # the database waits for nobody, nor is it waited for
                continue
            for party in known:
                of[party] = (*of.get(party, ()), *_weakly(one.things.values()))
            if None not in parties and status is not Status.ACTIVE:
                yield from (Hold(party=party, resource=link.client) for party in sorted(known))

    def of(self, party: PartyName | None) -> tuple[Any, ...]:
        """What a party had at the newest cut of connections with a transaction or statement, or made to work on one."""
        weak = () if party is None else self._of.get(party, ())
        return tuple(connection for one in weak if (connection := one()) is not None)

    def doubt_of(self, party: PartyName | None) -> str:
        """Rule 3: why waits on a party's connections may end by themselves, in words."""
        connections = {id(one): one for thing in self.of(party) for one in connections_in(thing)}.values()
        if not connections:
            return ""
        for connection in connections:
            named = next((name for name in TIMEOUTS if name in settings_of(connection)), None)
            if named is not None:
                return f"its connection to the database was begun with {named}"
        return self._mentions.doubt()

    def shared(self, place: Place) -> Mapping[int, str]:
        """Rule 2: which of a party's connections are found in other objects that it has, and in which of its variables."""
        wanted = {id(one) for thing in self.of(place.party) for one in connections_in(thing)}
        found: dict[int, str] = {}
        for frame in place.frames if wanted else ():
            if _is_users(frame):
                for name, thing in variables_of(frame).items():
                    found.update(dict.fromkeys(_inside(thing, wanted), name))
        return found


def _weakly(things: Iterable[Any]) -> Iterable[ref[Any]]:
    """References that keep nothing open, where a class allows them."""
    for thing in things:
        try:
            yield ref(thing)
        except TypeError:
            yield from (ref(connection) for connection in connections_in(thing))


def _is_users(frame: FrameType) -> bool:
    """Whether a frame is of the application, and of no driver or pool."""
    return is_application(frame.f_code) and not is_library(str(frame.f_globals.get("__name__", "")))


def _inside(root: Any, wanted: set[int]) -> set[int]:
    """The wanted connections that are found inside an object which is neither one of them nor made to work on one."""
    found: set[int] = set()
    seen: dict[int, Any] = {}
    todo = deque([root])
    while todo and len(seen) < OBJECTS_MAX:
        thing = todo.popleft()
        if id(thing) in seen or issubclass(type(thing), PASSED_BY):
            continue
        seen[id(thing)] = thing  # kept alive, or its identity may be given anew
        connections = connections_in(thing)
        if connections:
            found.update({id(one) for one in connections if id(one) in wanted} if thing is not root else ())
        elif not is_library(type(thing).__module__):
            near = named_by(thing)
            todo.extend(near if near is not None else _referents(thing))
    return found


def _referents(thing: Any) -> Iterable[Any]:
    return gc.get_referents(thing) if is_open(thing) else ()
