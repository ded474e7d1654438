"""An outgoing HTTP request, from its sending to the end of its reply; shared by the shells for all HTTP clients.

Rules:

1. Each hop is a call: redirects and the client library's own attempts are further requests on a connection. Attempts of one
   hop (urllib3's ``Retry``) share one number: the call can be at two servers.
2. The party waits from the writing of the request until the head of the reply has come, unless code of the application still
   produces the request's body. Before, it may wait for a connection of the client's pool. The call is outstanding until the
   reply's body has ended, or is closed or dropped; a party that reads a body is not waiting.
3. A request that was written to a connection and got no reply is in doubt (rule 8 of docs/design.md section 3). So is one
   whose reply has no stamp and a status that a proxy may have set.

Each method fails open: errors are counted, and the application's request goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any
from weakref import WeakKeyDictionary, ref

from stilltrue.http.headers import ADDRESS, address_text, path_of, request_name
from stilltrue.model import PartyName
from stilltrue.protocol.books.ledger import ChannelRecord, ClientCall
from stilltrue.protocol.stamp import Stamp
from stilltrue.protocol.step import StepError
from stilltrue.runtime.calls.outgoing_call import OutgoingCall
from stilltrue.runtime.parties import Parties
from stilltrue.runtime.session import Session
from stilltrue.runtime.transport.tcp import ends_of

CHANNELS_MAX = 1_024
STATUS_FAILED_MIN = 500
STATUS_TIMEOUT = 408

Pair = tuple[str, str]


class HttpCall(OutgoingCall):
    """An HTTP request made here."""

    __slots__ = ("_addresses", "_outcome", "_pair", "_waits", "_written")

    def __init__(self, session: Session, made: ClientCall, pair: Pair, *, waits: bool) -> None:
        """``pair`` is its stamp, as a header. ``waits``: the party is blocked once the request is written."""
        super().__init__(session, made)
        self._pair = pair
        self._waits = waits
        self._written = False
        self._addresses: tuple[object, object] | None = None
        self._outcome: tuple[Stamp | None, bool] | None = None
        session.over_tcp[made.number] = self

    def __del__(self) -> None:
        if not self.settled:
            self.end()

    @property
    def ends(self) -> tuple[str, str] | None:
        """The addresses of the connection that the request was written to, ours first; None if unknown."""
        return None if self._addresses is None else ends_of(*self._addresses)

    def headers(self, address: object, peer: object) -> tuple[Pair, ...]:
        """The headers to write to a connection from ``address`` to ``peer``, as sockets return them; now the party waits."""
        self._written = True
        if self._waits:
            self._await()
        self._addresses = address, peer
        text = address_text(address)
        return (self._pair, (ADDRESS, text)) if text else (self._pair,)

    def _await(self) -> None:
        try:
            self.live.awaits(self.made)
        except Exception:  # noqa: BLE001 - fail open: the request still needs its stamp
            self.live.report_failure("waiting for a reply")

    def head_received(self, status: int, stamp: str | None) -> None:
        """The head of the reply has come, with this stamp header: the party goes on."""
        live = self.live
        try:
            known = None if stamp is None else live.stamp_of(stamp, self.made.method, reply=True)
            if known is not None:
                live.coloured(known)
            self._outcome = known, known is None and (status >= STATUS_FAILED_MIN or status == STATUS_TIMEOUT)
            live.goes_on(self.made)
        except Exception:  # noqa: BLE001 - fail open
            live.report_failure("receiving a reply")

    def end(self) -> None:
        """The body has ended, or is no longer read, or the request has failed. May run in a finalizer."""
        if self.settled:
            return
        try:
            stamp, in_doubt = self._outcome or (None, self._written)
            self._settle(stamp, in_doubt=in_doubt)
        except Exception:  # noqa: BLE001 - fail open
            self.live.report_failure("ending a request")


writing: ContextVar[HttpCall | None] = ContextVar("stilltrue_http_writing", default=None)
"""The request that the current thread or task is about to write to a connection."""


class Requests:
    """Starts recording the requests of one agent's process."""

    def __init__(self, session: Session, start: Callable[[], object]) -> None:
        """``start`` makes the agent connect; idempotent."""
        self.session = session
        self._start = start
        self._channels: WeakKeyDictionary[Any, dict[tuple[str, int], ChannelRecord]] = WeakKeyDictionary()

    def begin(
        self,
        verb: str,
        target: str,
        host: str,
        *,
        owner: object,
        timeout: float | None,
        now: Callable[[], PartyName | None],
        copies_max: int = 1,
        closes: bool = False,
        waiting: bool = True,
    ) -> HttpCall | None:
        """Begin a request for ``target`` (a path and query) at ``host`` (``HOST:PORT``); None if it is not recorded.

        ``owner`` has the connections; ``closes``: closing it ends open requests. ``timeout`` in seconds. ``now`` returns the
        party that makes the request; ``waiting``: it is blocked once the request is written, since the body is complete.
        Raises :class:`~stilltrue.protocol.step.StepError` if the application misuses a step.
        """
        session = self.session
        try:
            method, _ = request_name(verb.upper(), path_of(target))
            if session.leaves_out(method[len(verb) + 1 :]):
                return None
            self._start()
            party = now()
            channel = self._channel(owner, host, copies_max, closes)
            made, pair = session.live.sent(method, channel, party, timeout, False)
        except StepError:
            raise
        except Exception:  # noqa: BLE001 - fail open: the request goes on unrecorded
            session.live.report_failure("starting a request")
            return None
        return HttpCall(session, made, pair, waits=waiting and party is not None)

    def _channel(self, owner: object, host: str, copies_max: int, closes: bool) -> ChannelRecord:
        channels = self._channels.setdefault(owner, {})
        known = channels.get((host, copies_max))
        if known is None:
            if len(channels) >= CHANNELS_MAX:
                channels.clear()
            known = channels[host, copies_max] = ChannelRecord(host, copies_max=copies_max)
            known.dialled = ref(owner) if closes else None
        return known


def current_party(parties: Parties) -> Callable[[], PartyName | None]:
    """A function that returns the party of the current task; None outside asyncio tasks."""

    def now() -> PartyName | None:
        task = asyncio.current_task() if asyncio._get_running_loop() is not None else None  # noqa: SLF001 - documented
        return None if task is None else parties.of_current(task)

    return now


def total_of(*timeouts: Any) -> float | None:
    """The sum of timeouts in seconds; None if the last one, which bounds the reply, is None."""
    if not timeouts or not isinstance(timeouts[-1], int | float):
        return None
    return float(sum(one for one in timeouts if isinstance(one, int | float)))
