"""Waits in a callback of a call for another call on the same channel: its reply is passed on by the waiting thread itself.

Rules:

1. A channel has one thread that passes on the ends and items of all calls that were begun by ``future()`` or as streams, and
   runs their callbacks. While a callback waits for such a call of this channel, nothing passes its end on: neither a reply nor
   its deadline.
2. A call belongs to the channel if gRPC's own objects of both lead to the same state of the channel.
3. The wait ends early if a party cancels the call, which the search for the ways out of a recorded wait finds.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from types import FrameType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import frames_of_thread, variables_of
from stilltrue.runtime.look.code.attributes import attribute_of
from stilltrue.runtime.own_ref import OwnRef
from stilltrue.runtime.waits.wait import CallStack, ProcessView, Resolver, SeenWait

_FILE = "grpc/_channel.py"
_PASSES_ON = "_run_channel_spin_thread.<locals>.channel_spin"
_WAITING = frozenset({"result", "exception", "traceback", "_next"})
_STATE = "_ChannelState"


def _read(stack: CallStack, at: int, _: ProcessView) -> SeenWait | None:
    call = _awaited_in(stack.frames[:at])
    channel = attribute_of(variables_of(stack.frames[at]).get("state"), "channel")
    if stack.task is not None or call is None or not _is_of(call, channel):
        return None
    weak, ident = OwnRef(call), stack.ident

    def same() -> bool:
        return _awaited_in(frames_of_thread(ident)) is weak()

    what = "an event of its own channel, which {} passes on"
    return SeenWait(on=call, enders=(ident,), what=what, handles=(call,), once=True, same=same)


def _awaited_in(frames: Sequence[FrameType]) -> Any:
    """gRPC's call for whose end or next item a thread with these frames waits without a timeout; None if there is none."""
    for frame in frames:
        code = frame.f_code
        if compat.is_grpc(code.co_filename) and code.co_name in _WAITING:
            names = variables_of(frame)
            return names.get("self") if names.get("timeout") is None else None
    return None


def _is_of(call: Any, channel: Any) -> bool:
    """Rule 2."""
    core = attribute_of(call, "_call")
    states = [one for one in gc.get_referents(core) if type(one).__name__ == _STATE]
    return bool(states) and any(one is states[0] for one in gc.get_referents(channel))


RESOLVERS = (Resolver(((_FILE, _PASSES_ON),), _read, of_shells=True),)
