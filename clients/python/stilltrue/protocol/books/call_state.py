"""The states of a call at its caller and at its server, and the table of transitions between them.

A transition that is not in the table is a bug of ours (:class:`IllegalTransitionError`); the shells then leave the call
unrecorded, and never fail it.

At the caller: ``SENT`` (outstanding), ``AWAITED`` (outstanding, and its party is blocked on it), ``HELD_BACK`` (the outcome is
known, but counts only from the end of an open step, protocol rule 7), ``IN_DOUBT`` (protocol rule 8), ``OVER``.
At the server: ``QUEUED``, ``ABANDONED`` (queued, and the caller is gone), ``SERVED``, ``UNHEARD`` (still being served, but the
caller is gone and will not receive the reply), ``OVER``.
"""

from __future__ import annotations

from enum import IntEnum, auto
from typing import TypeVar


class IllegalTransitionError(AssertionError):
    """An event was recorded that is impossible in the call's state: a bug of ours."""


class ClientState(IntEnum):
    """A call as its caller knows it."""

    SENT = auto()
    AWAITED = auto()
    HELD_BACK = auto()
    IN_DOUBT = auto()
    OVER = auto()


class ServerState(IntEnum):
    """A call as its server knows it."""

    QUEUED = auto()
    ABANDONED = auto()
    SERVED = auto()
    UNHEARD = auto()
    OVER = auto()


_State = TypeVar("_State", bound=IntEnum)


class Transitions(dict[_State, _State]):
    """The transitions of one event: maps each state in which it may happen to the next state."""

    def __init__(self, event: str, steps: dict[_State, _State]) -> None:
        """``event`` is its name in error messages."""
        super().__init__(steps)
        self._event = event

    def __missing__(self, state: _State) -> _State:
        raise IllegalTransitionError(f"{self._event}: not in state {state.name}")


_C, _S = ClientState, ServerState

AWAIT = Transitions(
    "await",
    {
        _C.SENT: _C.AWAITED,
        _C.AWAITED: _C.AWAITED,
        _C.HELD_BACK: _C.HELD_BACK,
        _C.IN_DOUBT: _C.IN_DOUBT,
        _C.OVER: _C.OVER,
    },
)
GO_ON = Transitions(
    "go on",
    {_C.SENT: _C.SENT, _C.AWAITED: _C.SENT, _C.HELD_BACK: _C.HELD_BACK, _C.IN_DOUBT: _C.IN_DOUBT, _C.OVER: _C.OVER},
)
HOLD_BACK = Transitions("hold back", {_C.SENT: _C.HELD_BACK, _C.AWAITED: _C.HELD_BACK, _C.HELD_BACK: _C.HELD_BACK})
SETTLE = Transitions("settle", {_C.SENT: _C.OVER, _C.AWAITED: _C.OVER, _C.HELD_BACK: _C.OVER})
DOUBT = Transitions("doubt", {_C.SENT: _C.IN_DOUBT, _C.AWAITED: _C.IN_DOUBT, _C.HELD_BACK: _C.IN_DOUBT})
FORGET = Transitions("forget", {_C.IN_DOUBT: _C.OVER})

START = Transitions("start", {_S.QUEUED: _S.SERVED, _S.ABANDONED: _S.UNHEARD})
HANG_UP = Transitions(
    "hang up",
    {
        _S.QUEUED: _S.ABANDONED,
        _S.ABANDONED: _S.ABANDONED,
        _S.SERVED: _S.UNHEARD,
        _S.UNHEARD: _S.UNHEARD,
        _S.OVER: _S.OVER,
    },
)
TAKE = Transitions("take", {_S.SERVED: _S.SERVED, _S.UNHEARD: _S.UNHEARD, _S.OVER: _S.OVER})
REOPEN = Transitions("reopen", {_S.OVER: _S.SERVED})
"""Its handler had ended, but no status was sent."""
END = Transitions("end", {_S.QUEUED: _S.OVER, _S.ABANDONED: _S.OVER, _S.SERVED: _S.OVER, _S.UNHEARD: _S.OVER})
