"""Notifications by HTTP: each incident that opens or ends, in order, retried until acknowledged.

Rules:

1. The service never waits: notifications go into a bounded queue, and a separate thread delivers them. Those that do not
   fit are dropped and counted.
2. Delivery is in order, so the end of an incident never precedes its beginning. An incident that is seen again after its
   end is sent again.
3. Any 2xx acknowledges. Failed connections, timeouts, 408, 429 and 5xx are retried a bounded number of times, with growing
   pauses; any other answer is final, since the same request would be refused again.
4. Delivery is at least once: the header ``Idempotency-Key`` is the same in each attempt.
"""

from __future__ import annotations

import json
import queue
import threading
import urllib.error
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from detector.ops.clock import utc_milliseconds
from detector.ops.logs import Log
from detector.service.detection.incident.incidents import Incident
from stilltrue.model import ProcessName, process_of

NAMED_MAX = 5
_WAITING = {"deadlock": "", "gridlock": ", until a deadline fires"}
"""The predicates whose parties wait for each other, and until when, if not for ever."""
_RETRIED = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.REQUEST_TIMEOUT)


class NotificationRefusedError(ValueError):
    """The notification URL is invalid; the message is one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """The bounds of rules 1 and 3. The pause doubles after each attempt, up to its maximum."""

    attempt_seconds_max: float = 10.0
    attempts_max: int = 8
    pause_seconds_min: float = 1.0
    pause_seconds_max: float = 60.0
    queued_max: int = 1000


class Notifier:
    """Notifies a URL of incidents."""

    def __init__(
        self, url: str, *, log: Log, known: Iterable[str] = (), pages: str = "", delivery: Delivery | None = None
    ) -> None:
        """``url``: http or https; raises :class:`NotificationRefusedError` for anything else.

        ``known``: ids of the incidents that were sent before a restart. ``pages``: the web UI's public URL, for links.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise NotificationRefusedError(f"the notification URL must begin with http:// or https:// and a host, not {url!r}")
        self._url = url
        self._host = parts.hostname
        self._log = log
        self._pages = pages.rstrip("/")
        self._delivery = delivery or Delivery()
        self._queue: queue.Queue[tuple[str, bytes] | None] = queue.Queue(self._delivery.queued_max)
        self._stopping = threading.Event()
        self._opener = urllib.request.build_opener(_NoRedirect)
        self._notified_open = set(known)
        self.dropped = 0
        self._thread = threading.Thread(target=self._work, name="stilltrue-notify", daemon=True)
        self._thread.start()

    def changed(self, incident: Incident) -> None:
        """Queue a notification if the changed incident has opened or ended. Never waits (rule 1)."""
        if incident.open is (incident.id in self._notified_open):
            return
        if incident.open:
            self._notified_open.add(incident.id)
        else:
            self._notified_open.discard(incident.id)
        key = f"{incident.id}-{_event(incident)}-{incident.last_snapshot}"
        body = json.dumps(notification(incident, self._pages), ensure_ascii=False).encode()
        try:
            self._queue.put_nowait((key, body))
        except queue.Full:
            self._give_up(key, f"{self._delivery.queued_max} are already queued")

    def close(self, seconds_max: float) -> None:
        """Deliver queued notifications for at most ``seconds_max``, without further retries."""
        self._stopping.set()
        try:
            self._queue.put_nowait(None)
        except queue.Full:
            return
        self._thread.join(seconds_max)

    def _work(self) -> None:
        while (work := self._queue.get()) is not None:
            self._deliver(*work)

    def _deliver(self, key: str, body: bytes) -> None:
        pause = self._delivery.pause_seconds_min
        for attempt in range(1, self._delivery.attempts_max + 1):
            refused, final = self._post(key, body)
            if not refused:
                self._log.info("notification delivered", notification=key, attempts=attempt)
                return
            if final or attempt == self._delivery.attempts_max or self._stopping.wait(pause):
                break
            pause = min(2 * pause, self._delivery.pause_seconds_max)
        self._give_up(key, refused)

    def _give_up(self, key: str, reason: str) -> None:
        self.dropped += 1
        self._log.warning("notification dropped", notification=key, host=self._host, reason=reason)

    def _post(self, key: str, body: bytes) -> tuple[str, bool]:
        """Make one attempt; return why it failed (empty: it did not), and whether that is final."""
        headers = {"Content-Type": "application/json", "User-Agent": "stilltrue", "Idempotency-Key": key}
        request = urllib.request.Request(self._url, data=body, headers=headers, method="POST")
        try:
            with self._opener.open(request, timeout=self._delivery.attempt_seconds_max) as response:
                response.read(1024)
        except urllib.error.HTTPError as error:
            error.close()
            return f"status {error.code}", error.code < HTTPStatus.INTERNAL_SERVER_ERROR and error.code not in _RETRIED
        except (OSError, ValueError) as error:  # failed connections, timeouts, and answers that are not HTTP
            return f"{type(error).__name__}: {error}", False
        return "", True


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: urllib would turn the POST into a GET without a body."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Do not follow."""


def notification(incident: Incident, pages: str = "") -> dict[str, Any]:
    """The JSON to post; chat systems show its ``text``. ``pages``: the web UI's public URL, if known, for links."""
    url = f"{pages}/incidents/{incident.id}" if pages else ""
    return {
        "version": 1,
        "event": _event(incident),
        "text": f"{summary(incident)} {url}".rstrip(),
        "url": url or None,
        "incident": {
            "id": incident.id,
            "predicate": incident.predicate,
            "scope": incident.scope,
            "core": list(incident.core),
            "behind": list(incident.behind),
            "opened": _time(incident.opened),
            "closed": _time(incident.closed),
            "formed": _time(incident.formed),
            "ending": incident.ending,
            "witness": incident.text,
            "waits": list(incident.waits),
            "snapshot": int(incident.last_snapshot),
        },
    }


def summary(incident: Incident) -> str:
    """One sentence with the kind of incident, its processes and its id."""
    processes: list[ProcessName] = sorted({process_of(party) for party in incident.core})
    more = f" and {len(processes) - NAMED_MAX} more" if len(processes) > NAMED_MAX else ""
    who = ", ".join(processes[:NAMED_MAX]) + more
    kind = f"{incident.predicate.capitalize()} {incident.id}"
    if incident.open:
        return f"{kind}: {_what(incident, who, len(processes))}; stilltrue show {incident.id}"
    return f"{kind} of {who} is over: {incident.ending}"


def _what(incident: Incident, who: str, processes: int) -> str:
    """What has happened to ``who``, in words."""
    if incident.predicate not in _WAITING:
        return f"{who}: {incident.text}"
    if len(incident.core) == 1:
        what = f"{who} waits for itself"
    else:
        what = f"{'parties of ' if processes == 1 else ''}{who} wait for each other"
    return what + _WAITING[incident.predicate]


def _event(incident: Incident) -> str:
    return "opened" if incident.open else "closed"


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else utc_milliseconds(seconds)
