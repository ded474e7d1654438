"""One HTTP request served here: what the WSGI and ASGI shells share.

Rules:

1. Only a request that was made on the connection on which it came has a known caller (:mod:`stilltrue.http.headers`, rule 2).
   The colour of another one counts all the same, so that cuts stay consistent.
2. The head of a reply has its stamp; the call is served until the body has been handed over. Facts that a step gives away
   with its reply leave with the head.
3. A server that ends its workers' requests (gunicorn's timeout, uWSGI's harakiri), or answers for them (daphne's), gives them
   a deadline.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import Any

from stilltrue.http.headers import named
from stilltrue.protocol.books.ledger import NO_REPLY
from stilltrue.runtime import compat
from stilltrue.runtime.calls.incoming_call import IncomingCall
from stilltrue.runtime.introspection.frames import frames_of_this_thread
from stilltrue.runtime.recorder import Pair
from stilltrue.runtime.session import Session

STATUS_FAILED_MIN = 400
_TRACES = re.compile(r"traceparent|b3|x-b3-traceid")


class HttpContext:
    """What gRPC's context is to a call: its remaining time, and the headers that name its trace."""

    __slots__ = ("_pairs", "_seconds_max")

    def __init__(self, pairs: Iterable[tuple[str, str]], seconds_max: float | None) -> None:
        """``pairs`` are headers in small letters; ``seconds_max``: after that the server ends the request."""
        self._pairs = pairs
        self._seconds_max = seconds_max

    def time_remaining(self) -> float | None:
        """As ``grpc.ServicerContext.time_remaining``."""
        return self._seconds_max

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        """As ``grpc.ServicerContext.invocation_metadata``; only what names a trace."""
        return tuple(pair for pair in self._pairs if _TRACES.fullmatch(pair[0]))


def receive_request(
    session: Session, verb: str, path: str, *, stamps: list[str], claimed: str, peer: str, proxied: bool, interruptible: bool
) -> IncomingCall | None:
    """A request arrived; None: it is not recorded.

    ``claimed`` is the address that the caller says its connection has, ``peer`` the one at the other end of ours;
    ``proxied``: it bears signs of a proxy. ``interruptible``: its handler is cancelled when the caller goes away.
    """
    live = session.live
    try:
        method, label = named(verb, path)
        if session.leaves_out(method[len(verb) + 1 :]):
            return None
        if len(stamps) > 1 or (stamps and "," in stamps[0]):
            live.several_stamps()
            stamps = []
        stamp = live.stamp_of(stamps[0], method, reply=False) if stamps else None
        if stamp is not None and (proxied or not peer or claimed != peer):  # rule 1
            live.coloured(stamp)
            stamp = None
        return IncomingCall(session, live.arrived(stamp, method, interruptible, label))
    except Exception:  # noqa: BLE001 - fail open
        live.report_failure("a request arrives")
        return None


def begin_reply(call: IncomingCall, status: int) -> Pair | None:
    """The head of the reply is about to be sent: its stamp (rule 2); None for a caller who is told nothing."""
    served = call.served
    try:
        if served.reply is not NO_REPLY:
            pairs = call.end((), failed=status >= STATUS_FAILED_MIN)
            return pairs[-1] if pairs else None
        return None if served.caller is None or call.over else call.live.reply_begun(served)
    except Exception:  # noqa: BLE001 - fail open
        call.live.report_failure("a reply is stamped")
        return None


def seconds_max(send: Any = None) -> float | None:
    """After how many seconds the server that runs the code above ends a request (rule 3); None: never. ``send`` is ASGI's."""
    uwsgi: Any = sys.modules.get("uwsgi")
    if uwsgi is not None:
        return _number(getattr(uwsgi, "opt", {}).get("harakiri"))
    if (answered := compat.daphnes_timeout(send)) is not None:
        return answered
    worker = compat.gunicorns_worker(frames_of_this_thread)
    return None if worker is None or compat.stays_alive(worker) else _number(worker.cfg.timeout)


def _number(value: Any) -> float | None:
    try:
        return float(value) or None
    except (TypeError, ValueError):
        return None
