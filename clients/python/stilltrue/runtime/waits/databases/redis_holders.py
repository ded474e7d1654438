"""Finds the holders of redis-py's locks: rules 2 and 3 of :mod:`~stilltrue.runtime.waits.databases.redis_locks`."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any

from stilltrue.protocol.report import Hold
from stilltrue.runtime.introspection.origins import is_application
from stilltrue.runtime.look.code.attributes import attribute_of
from stilltrue.runtime.waits.databases.redis_locks import MODULE, is_lock
from stilltrue.runtime.waits.databases.redis_names import token_resource
from stilltrue.runtime.waits.holders.try_finally import held_by_try_finally, may_hold_by_try_finally
from stilltrue.runtime.waits.holders.with_blocks import blocks_of
from stilltrue.runtime.waits.process_view import LiveProcessView


def holds(view: LiveProcessView) -> tuple[Hold, ...]:
    """Rule 2: the parties that hold tokens at a cut."""
    if MODULE not in sys.modules:
        return ()
    found: list[Hold] = []
    for stack in view.stacks().values():
        tokens = [token for lock in _held_in(stack.frames) if (token := _token_of(lock)) is not None]
        party = view.party_of(stack.who) if tokens else None  # asks only for holders, as asking names the party
        if party is not None:
            found += (Hold(party=party, resource=token_resource(token)) for token in tokens)
    return tuple(dict.fromkeys(found))


def _held_in(frames: Iterable[FrameType]) -> Iterator[Any]:
    for frame in frames:
        if is_application(frame.f_code):
            bare = (
                (one for one, awaited in held_by_try_finally(frame) if not awaited)
                if may_hold_by_try_finally(frame.f_code)
                else ()
            )
            yield from (one for one in (*blocks_of(frame), *bare) if is_lock(one))


def _token_of(lock: Any) -> bytes | None:
    """The token of a lock that only one thread holds (rule 3)."""
    local = attribute_of(lock, "local")
    if type(local) is not threading.local:
        return None
    tables = [one for one in gc.get_referents(local) if type(one) is dict]
    values = [own.get("token") for table in tables for own in list(table.values()) if type(own) is dict]
    tokens = {one for one in values if one is not None}
    token = tokens.pop() if len(tokens) == 1 else None
    return token if type(token) is bytes else None
