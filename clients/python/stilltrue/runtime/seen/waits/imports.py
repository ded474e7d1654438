"""Waits for a module that another thread imports: its lock knows the thread that has it, and takes it back from no other."""

from __future__ import annotations

from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.look.code.attributes import attribute_of
from stilltrue.runtime.seen.wait import CallStack, Resolver, Scene, SeenWait


def _read(stack: CallStack, at: int, _: Scene) -> SeenWait | None:
    """A thread that imports what another has not yet imported to the end."""
    lock = variables_of(stack.frames[at]).get("self")
    owner = attribute_of(lock, "owner")
    if stack.task is not None or at != 0 or type(owner) is not int or owner == stack.ident:
        return None
    return SeenWait(on=lock, enders=(owner,), what="a module that {} imports")


RESOLVERS = (Resolver((("<frozen importlib._bootstrap>", "_ModuleLock.acquire"),), _read),)
