"""Waits for a module that another thread is importing: only the lock's owner, which it knows, can release it."""

from __future__ import annotations

from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.look.code.attributes import attribute_of
from stilltrue.runtime.waits.wait import CallStack, ProcessView, Resolver, SeenWait


def _read(stack: CallStack, at: int, _: ProcessView) -> SeenWait | None:
    """A thread that imports a module whose import by another thread is not complete."""
    lock = variables_of(stack.frames[at]).get("self")
    owner = attribute_of(lock, "owner")
    if stack.task is not None or at != 0 or type(owner) is not int or owner == stack.ident:
        return None
    return SeenWait(on=lock, enders=(owner,), what="a module that {} imports")


RESOLVERS = (Resolver((("<frozen importlib._bootstrap>", "_ModuleLock.acquire"),), _read),)
