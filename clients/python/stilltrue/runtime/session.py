"""The part of an agent that its interceptors, channels and locks share: recorder, parties and excluded methods."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Protocol
from weakref import WeakValueDictionary

from stilltrue.model import CallNumber, WaitNumber
from stilltrue.protocol.books.ledger import ClientCall
from stilltrue.runtime.locked_recorder import LockedRecorder
from stilltrue.runtime.owned_shares import OwnedShares
from stilltrue.runtime.parties import Parties

LEFT_OUT = ("/grpc.health.", "/grpc.reflection.", "/grpc.channelz.", "/stilltrue.")
"""Prefixes of methods that are never recorded: health, reflection, channelz, and Stilltrue's own traffic."""
METHODS_MAX = 10_000
METHOD_LENGTH_MAX = 256
"""Longer names are not cached: a stranger could send thousands of different ones."""


class OverTcp(Protocol):
    """A request sent over a TCP connection."""

    @property
    def ends(self) -> tuple[str, str] | None:
        """The connection's local and remote address, or None if unknown."""
        ...


class Session:
    """What the interceptors, channels and locks of one agent share."""

    __slots__ = ("_enabled", "_excluded", "left_out", "live", "over_tcp", "owned", "parties")

    def __init__(
        self,
        live: LockedRecorder,
        parties: Parties,
        enabled: bool,
        excluded: Iterable[str] = (),
        owned: OwnedShares | None = None,
    ) -> None:
        """``live`` records; ``parties`` names the current party; nothing is recorded unless ``enabled``.

        ``excluded``: patterns of methods not to record (``/pkg.Service/*``). ``owned``: shares that only their owners release.
        """
        self.owned = owned or OwnedShares(parties)
        self.live = live
        self.parties = parties
        self._enabled = enabled
        self._excluded = tuple(f"/{pattern.lstrip('/')}" for pattern in excluded)
        self.left_out: dict[str | bytes, bool] = {}
        """Cached answers of :meth:`leaves_out`, by method."""
        self.over_tcp: WeakValueDictionary[CallNumber, OverTcp] = WeakValueDictionary()
        """Outstanding HTTP requests."""

    @property
    def excludes_methods(self) -> bool:
        """Whether the application excludes methods, so that some calls go unrecorded."""
        return bool(self._excluded)

    def leaves_out(self, method: str | bytes) -> bool:
        """Whether calls of this method go unrecorded."""
        known = self.left_out.get(method)
        if known is not None:
            return known
        text = method.decode("utf-8", "replace") if isinstance(method, bytes) else method
        if len(text) > METHOD_LENGTH_MAX:
            return self._excludes(text)
        if len(self.left_out) >= METHODS_MAX:
            self.left_out.clear()
        self.left_out[method] = out = self._excludes(text)
        return out

    def _excludes(self, method: str) -> bool:
        if not self._enabled or method.startswith(LEFT_OUT):
            return True
        return any(fnmatchcase(method, pattern) for pattern in self._excluded)

    def begin_wait(self, made: ClientCall, timeout: float | None = None, *, item: bool = False) -> WaitNumber | None:
        """The current party begins to wait for the call (``item``: for its next item); None if recording failed."""
        live = self.live
        try:
            party = self.parties.current()
            what = f"an item of {made.method}" if item else f"the reply to {made.method}"
            return live.waits(party, made.among, 1, timeout, made.deadline, item, what)
        except Exception:  # noqa: BLE001 - fail open
            live.report_failure("starting a wait")
            return None

    def end_wait(self, wait: WaitNumber | None) -> None:
        """End a wait, if there is one."""
        if wait is not None:
            try:
                self.live.resumes(wait)
            except Exception:  # noqa: BLE001 - fail open
                self.live.report_failure("ending a wait")
