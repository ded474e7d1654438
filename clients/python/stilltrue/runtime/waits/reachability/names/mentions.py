"""Whether code that mentions what ends a wait may do so for an object that it is handed, or finds where others keep it.

Rules:

1. Code that a function, or the rest of a frame, calls counts as well. If it may be any code, it may end the wait. So may a
   function that completes a future, whose callbacks then run.
2. A future or event that code has made itself is another one. The builtin ``set`` is none of an event, and a dictionary's
   ``get`` takes nothing out of a queue.
3. The standard library and gRPC set, complete and cancel only what is their own.
4. A name that code puts together (``getattr(event, "s" + kind)``) may be any that begins or ends with one of the code's texts.
5. If a task awaits a future, so may a method, whose caller may cancel it, or another task: that cancels the future, if it is
   not its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from types import CodeType, FrameType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.bytecode.instructions import is_jump
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.origins import is_application, is_ours, is_own_code
from stilltrue.runtime.look.called_code.reachable_names import codes_reached, reachable_names
from stilltrue.runtime.look.code.instructions_ahead import ahead_of
from stilltrue.runtime.look.code.lookups import COMPUTED, looked_up
from stilltrue.runtime.look.code.names import words_in
from stilltrue.runtime.look.code.system_operations import texts_in
from stilltrue.runtime.waits.ending_operations import COMPLETING, COMPLETING_OR_CANCELLING, SETTING
from stilltrue.runtime.waits.futures.own_futures import completes_only_own, sets_only_own_events
from stilltrue.runtime.waits.holders.gates.own_shares import COMPUTING
from stilltrue.runtime.waits.holders.queues.queue_operations import GET, GET_NOWAIT, queue_operations
from stilltrue.runtime.waits.holders.with_blocks import instructions_of
from stilltrue.runtime.waits.reachability.loops.waking import WITH_ITS_WAITER, mentioned_ahead
from stilltrue.runtime.waits.reachability.names.code_names import names_ahead, names_of

_TAKING = frozenset({GET, GET_NOWAIT})
_OF_AWAIT = "JUMP_BACKWARD_NO_INTERRUPT"
"""The instruction that ends the loop of an ``await`` itself."""
_AWAITING = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def may_end(function: Any, waking: frozenset[str]) -> bool:
    """Whether a function may end a wait. ``waking``: the names of the operations that do."""
    code, names, owner = compat.code_behind(function)
    if code is None:
        return True
    if is_ours(code):
        return False
    carried = (owner, *compat.bound_to(function))
    reached = reachable_names(code, names, carried)
    if reached.any_code or reached.any_object or reached.any_name:
        return True
    mentioned = waking & reached.names
    codes = codes_reached(code, names, carried)
    own = [one for one in codes if is_own_code(one)]
    if any(_calls_back(one, waking) or _puts_together(one, waking) for one in own):
        return True
    if not mentioned and WITH_ITS_WAITER not in waking:
        return False
    own = [one for one in codes if is_application(one)]
    return (WITH_ITS_WAITER in waking and not completes_only_own(own)) or _is_of_others(mentioned, codes)


def _calls_back(code: CodeType, waking: frozenset[str]) -> bool:
    """Whether code completes a future that may have callbacks, if that is not what ends the wait itself."""
    return waking.isdisjoint(COMPLETING_OR_CANCELLING) and not COMPLETING.isdisjoint(names_of(code))


def _puts_together(code: CodeType, waking: frozenset[str]) -> bool:
    """Whether code computes a name that may end the wait, of which it has a part as a text (rule 4)."""
    if COMPUTED not in looked_up(code):
        return False
    parts = [one for one in texts_in(code.co_consts) if one]
    return any(name.startswith(part) or name.endswith(part) for name in waking for part in parts)


def may_end_ahead(frame: FrameType, waking: frozenset[str]) -> bool:
    """Whether the rest of a frame's code may end a wait, as in :func:`may_end`."""
    code = frame.f_code
    mentioned = waking & mentioned_ahead(frame)
    awaits = WITH_ITS_WAITER in waking and bool(code.co_flags & _AWAITING) and is_application(code)
    if not mentioned and not awaits:
        return False
    ahead = ahead_of(code, frame.f_lasti)
    named = names_ahead(frame)
    codes = codes_reached(
        code, frame.f_globals, variables_of(frame).values(), ahead.names | ahead.stored if ahead.known else None
    )
    counts = code.co_name in named or not {*mentioned, *COMPUTING}.isdisjoint(named) or (awaits and _awaits_again(frame))
    kept = [one for one in codes if counts or one is not code]
    if awaits and not completes_only_own([one for one in kept if is_application(one)]):
        return True
    return bool(mentioned) and _is_of_others(mentioned, kept)


def _awaits_again(frame: FrameType) -> bool:
    """Whether the code after the instruction at which a frame is awaits something or goes back to the beginning of a loop."""
    after = (one for one in instructions_of(frame.f_code) if one.offset > frame.f_lasti)
    loops = (one for one in after if one.opname == "GET_AWAITABLE" or (is_jump(one) and one.argval < frame.f_lasti))
    return any(one.opname != _OF_AWAIT for one in loops)


def _is_of_others(mentioned: frozenset[str], codes: Sequence[CodeType]) -> bool:
    """Whether what code mentions may end the wait for what it has not made itself (rules 2 and 3)."""
    if mentioned <= COMPLETING_OR_CANCELLING:
        return not _only_libraries_mention(mentioned, codes) and not completes_only_own(codes)
    if mentioned <= SETTING:
        return not sets_only_own_events(codes)
    return not mentioned <= _TAKING or any(queue_operations(one, words_in(one)) for one in codes)


def _only_libraries_mention(mentioned: frozenset[str], codes: Iterable[CodeType]) -> bool:
    own = [one for one in codes if is_application(one)]
    computes = any(is_own_code(one) and not COMPUTING.isdisjoint(names_of(one)) for one in own)
    return not computes and all(mentioned.isdisjoint(names_of(one)) for one in own)
