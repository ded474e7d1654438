"""Waits in the shutdown of a ``socketserver`` server (``http.server``, ``wsgiref``, werkzeug) for the thread that serves.

That thread ends the wait after its current request, which may be the one that shuts the server down.
"""

from __future__ import annotations

import sys
from types import CodeType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.look.code.attributes import attribute_of
from stilltrue.runtime.waits.wait import CallStack, ProcessView, Resolver, SeenWait

_OVER = "_BaseServer__is_shut_down"


def _read(stack: CallStack, at: int, view: ProcessView) -> SeenWait | None:
    server = variables_of(stack.frames[at]).get("self")
    serves = _serves_forever(server)
    if stack.task is not None or serves is None or not compat.is_endless_wait(stack.frames[0]):
        return None
    serving = [
        other.ident
        for other in view.stacks().values()
        if any(one.f_code is serves and variables_of(one).get("self") is server for one in other.frames)
    ]
    enders = tuple(serving) if len(serving) == 1 else None
    what = "the end of the request that {} serves"
    return SeenWait(
        on=attribute_of(server, _OVER), enders=enders, what=what, ended_through=(server,), ending_names=frozenset({_OVER})
    )


def _serves_forever(server: Any) -> CodeType | None:
    """The code of ``serve_forever``, for a server. The agent imports no ``socketserver``: a program may have such a module."""
    base = getattr(sys.modules.get("socketserver"), "BaseServer", None)
    if not isinstance(base, type) or not isinstance(server, base):
        return None
    code = getattr(vars(base).get("serve_forever"), "__code__", None)
    return code if isinstance(code, CodeType) else None


RESOLVERS = (Resolver((("socketserver.py", "BaseServer.shutdown"),), _read),)
