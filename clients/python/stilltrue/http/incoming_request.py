"""An incoming HTTP request; shared by the shells for HTTP servers.

Rules:

1. A request has a known caller only if it was sent on the very connection on which it came (:mod:`stilltrue.http.headers`,
   rule 2). The colour of any other request still counts, so that cuts stay consistent.
2. The head of a reply carries the stamp; the call is being served until the body has been handed over. Facts that a step
   sends with its reply leave with the head.
3. If the server ends requests by a timeout (gunicorn's timeout, uWSGI's harakiri) or answers them itself (daphne's timeout),
   that is their deadline.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import Any

from stilltrue.http.headers import VERB_LENGTH_MAX, request_name
from stilltrue.protocol.books.ledger import NO_REPLY
from stilltrue.runtime import compat
from stilltrue.runtime.calls.incoming_call import IncomingCall
from stilltrue.runtime.introspection.frames import frames_of_this_thread
from stilltrue.runtime.locked_recorder import Pair
from stilltrue.runtime.session import Session

STATUS_FAILED_MIN = 400
_TRACES = re.compile(r"traceparent|b3|x-b3-traceid")


class HttpContext:
    """The counterpart of gRPC's context: a request's remaining time, and the headers that name its trace."""

    __slots__ = ("_pairs", "_seconds_max")

    def __init__(self, pairs: Iterable[tuple[str, str]], seconds_max: float | None) -> None:
        """``pairs`` are headers with lower-case names; ``seconds_max``: the server's own timeout (rule 3)."""
        self._pairs = pairs
        self._seconds_max = seconds_max

    def time_remaining(self) -> float | None:
        """As ``grpc.ServicerContext.time_remaining``."""
        return self._seconds_max

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        """As ``grpc.ServicerContext.invocation_metadata``, but only the headers that name a trace."""
        return tuple(pair for pair in self._pairs if _TRACES.fullmatch(pair[0]))


def receive_request(
    session: Session, verb: str, path: str, *, stamps: list[str], claimed: str, peer: str, proxied: bool, interruptible: bool
) -> IncomingCall | None:
    """Record the arrival of a request; None if it is not recorded.

    ``claimed`` is the caller's address according to its header, ``peer`` according to our connection; ``proxied``: the request
    shows signs of a proxy. ``interruptible``: the handler is cancelled when the caller disconnects.
    """
    live = session.live
    try:
        verb = verb[:VERB_LENGTH_MAX]
        method, label = request_name(verb, path)
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
        live.report_failure("receiving a request")
        return None


def begin_reply(call: IncomingCall, status: int) -> Pair | None:
    """The stamp for the head of the reply, which is about to be sent (rule 2); None if the caller gets no stamp."""
    served = call.served
    try:
        if served.reply is not NO_REPLY:
            pairs = call.end((), failed=status >= STATUS_FAILED_MIN)
            return pairs[-1] if pairs else None
        return None if served.caller is None or call.over else call.live.reply_begun(served)
    except Exception:  # noqa: BLE001 - fail open
        call.live.report_failure("stamping a reply")
        return None


def seconds_max(send: Any = None) -> float | None:
    """The timeout, in seconds, of the server that runs the calling code (rule 3); None: no timeout. ``send`` is ASGI's."""
    uwsgi: Any = sys.modules.get("uwsgi")
    if uwsgi is not None:
        return _number(getattr(uwsgi, "opt", {}).get("harakiri"))
    if (answered := compat.daphne_timeout(send)) is not None:
        return answered
    worker = compat.gunicorn_worker(frames_of_this_thread)
    return None if worker is None or compat.has_own_heartbeat(worker) else _number(worker.cfg.timeout)


def _number(value: Any) -> float | None:
    try:
        return float(value) or None
    except (TypeError, ValueError):
        return None
