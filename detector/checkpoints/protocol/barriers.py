"""One vertex's part in asynchronous barrier snapshots: alignment of regular inputs, and a log of the back edges.

The rules (Carbone et al. 2015, "Lightweight Asynchronous Snapshots for Distributed Dataflows", algorithms 1 and 2):

1. *Begin.* A vertex without open regular inputs cuts when the coordinator tells it to.
2. *Align.* A barrier on a regular input holds that input: nothing more is received from it. A regular input is one that is not
   a back edge.
3. *Cut.* Once every regular input is held (or has ended), the vertex cuts, sends the barrier on every output including back
   edges, and releases its inputs. Aligned inputs need no log.
4. *Log.* From its cut until a back edge's barrier arrives, the vertex logs the messages received on that edge: those in transit
   in the loop. Several snapshots may be logging at once. Without back edges, the vertex has finished with its cut.
   If a back edge's barrier arrives before the cut, the edge is held until the cut, and its log is empty. This happens if a loop
   includes stages of several vertices, one of which has cut earlier. Holding it cannot block the regular inputs, since a back
   edge never makes its sender wait.
5. *Overtaken.* A barrier of a newer snapshot on an input that is not held shows that the snapshot being aligned was abandoned
   elsewhere; it is abandoned here, too. Barriers of snapshots that were cut or abandoned here are ignored.

Pure, like :class:`stilltrue.fifo.MarkerRecorder`, and with the same events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Generic

from stilltrue.fifo import (
    Abandoned,
    AbandonReason,
    Channel,
    ChannelRecord,
    Cut,
    Effect,
    Finished,
    Hold,
    LocalRecord,
    MarkerError,
    Release,
    SendMarker,
)
from stilltrue.fifo.model import M, S
from stilltrue.model import ProcessName, SnapshotId

_MESSAGES_MAX = 1_000_000
_NONE = SnapshotId(-1)


@dataclass(slots=True)
class _Aligning(Generic[S]):
    """The snapshot being aligned, and the inputs that are held for it."""

    snapshot: SnapshotId
    state: Callable[[], S]
    held: list[Channel] = field(default_factory=list)


@dataclass(slots=True)
class _Logging(Generic[S, M]):
    """A snapshot that was cut here, with back edges that are still open."""

    state: S
    sent: tuple[tuple[Channel, int], ...]
    received: dict[Channel, int]
    open: dict[Channel, list[M]]
    kept: int = 0
    abandoned: bool = False
    closed: dict[Channel, tuple[M, ...]] = field(default_factory=dict)


class BarrierRecorder(Generic[S, M]):
    """Aligns, cuts and logs for one vertex; ``back`` are those of ``incoming`` that close a cycle."""

    def __init__(
        self,
        process: ProcessName,
        *,
        incoming: Iterable[Channel],
        outgoing: Iterable[Channel],
        back: Iterable[Channel] = (),
        messages_max: int = _MESSAGES_MAX,
    ) -> None:
        self._process = process
        self._received = dict.fromkeys(sorted(incoming), 0)
        self._sent = dict.fromkeys(sorted(outgoing), 0)
        self._back = frozenset(back) & self._received.keys()
        self._messages_max = messages_max
        self._aligning: _Aligning[S] | None = None
        self._logging: dict[SnapshotId, _Logging[S, M]] = {}
        self._early: dict[Channel, SnapshotId] = {}
        self._given_up: set[SnapshotId] = set()
        self._newest = _NONE

    @property
    def held(self) -> tuple[Channel, ...]:
        """The inputs from which nothing may be received at the moment, sorted."""
        aligning = [] if self._aligning is None else self._aligning.held
        return tuple(sorted((*aligning, *self._early)))

    @property
    def under_way(self) -> tuple[SnapshotId, ...]:
        """The snapshots being aligned or logged here, sorted."""
        aligning = () if self._aligning is None else (self._aligning.snapshot,)
        return tuple(sorted((*self._logging, *aligning)))

    def begins(self, snapshot: SnapshotId, state: Callable[[], S]) -> tuple[Effect[S, M], ...]:
        """The coordinator tells this vertex to begin (rule 1); MarkerError if it has an open regular input."""
        if self._settled(snapshot):
            return ()
        if self._regular():
            raise MarkerError(f"{self._process} has inputs and cannot begin snapshot {snapshot}")
        return self._cut(snapshot, state)

    def sent(self, on: Channel) -> None:
        """The vertex sends a record on ``on``."""
        if on not in self._sent:
            raise MarkerError(f"{self._process} has no outgoing channel {on}")
        self._sent[on] += 1

    def received(self, on: Channel, message: M) -> tuple[Effect[S, M], ...]:
        """The vertex receives a record; MarkerError if it came from a held input."""
        self._expect(on)
        if on in self._early or (self._aligning is not None and on in self._aligning.held):
            raise MarkerError(f"{self._process} received from {on} while it was held")
        effects: tuple[Effect[S, M], ...] = ()
        if on in self._back:
            for snapshot, logging in self._logging.items():
                effects += self._log(snapshot, logging, on, message)
        self._received[on] += 1
        return effects

    def marked(self, on: Channel, snapshot: SnapshotId, state: Callable[[], S]) -> tuple[Effect[S, M], ...]:
        """The vertex receives the barrier of ``snapshot``."""
        self._expect(on)
        if on in self._back:
            return self._marked_back(on, snapshot)
        if self._settled(snapshot) or (self._aligning is not None and snapshot < self._aligning.snapshot):
            return ()  # rule 5
        effects: tuple[Effect[S, M], ...] = ()
        if self._aligning is not None and snapshot > self._aligning.snapshot:
            effects = self._abandon_alignment(AbandonReason.OVERTAKEN)
        if self._aligning is None:
            self._aligning = _Aligning(snapshot, state)
        if on in self._aligning.held:
            raise MarkerError(f"{self._process} received a second barrier of snapshot {snapshot} on {on}")
        self._aligning.held.append(on)
        return effects + self._cut_if_aligned(last=on)

    def ended(self, on: Channel) -> tuple[Effect[S, M], ...]:
        """An input has ended normally: its barrier is no longer needed."""
        self._expect(on)
        del self._received[on]
        self._early.pop(on, None)
        if on in self._back:
            effects: tuple[Effect[S, M], ...] = ()
            for snapshot in self.under_way:
                if snapshot in self._logging and on in self._logging[snapshot].open:
                    effects += self._close(snapshot, on)
            return effects
        return () if self._aligning is None else self._cut_if_aligned(last=None)

    def gives_up(self, snapshot: SnapshotId) -> tuple[Effect[S, M], ...]:
        """The coordinator gave ``snapshot`` up: release its inputs, drop its log, and ignore its barriers."""
        if snapshot > self._newest:
            self._given_up.add(snapshot)
        if self._aligning is not None and self._aligning.snapshot == snapshot:
            return self._abandon_alignment(AbandonReason.GIVEN_UP)
        if snapshot in self._logging:
            return self._abandon(snapshot, self._logging[snapshot], AbandonReason.GIVEN_UP)
        return self._release()

    def _regular(self) -> list[Channel]:
        return [one for one in self._received if one not in self._back]

    def _cut_if_aligned(self, *, last: Channel | None) -> tuple[Effect[S, M], ...]:
        aligning = self._aligning
        assert aligning is not None
        if any(one not in aligning.held for one in self._regular()):
            return () if last is None else (Hold(channel=last),)  # rule 2
        self._aligning = None
        effects = self._cut(aligning.snapshot, aligning.state)
        return effects + self._release(one for one in aligning.held if one != last)

    def _release(self, aligned: Iterable[Channel] = ()) -> tuple[Release, ...]:
        """Release ``aligned`` inputs, and back edges that are held for a snapshot that is settled."""
        early = [one for one, snapshot in self._early.items() if self._settled(snapshot)]
        for one in early:
            del self._early[one]
        released = tuple(sorted((*aligned, *early)))
        return (Release(channels=released),) if released else ()

    def _settled(self, snapshot: SnapshotId) -> bool:
        """Whether ``snapshot`` was cut or abandoned here, so that its barriers are ignored (rule 5)."""
        return snapshot <= self._newest or snapshot in self._given_up

    def _cut(self, snapshot: SnapshotId, state: Callable[[], S]) -> tuple[Effect[S, M], ...]:
        self._passes(snapshot)
        waiting = [one for one in self._received if one in self._back and self._early.get(one) != snapshot]
        open_: dict[Channel, list[M]] = {one: [] for one in waiting}
        logging = _Logging(state=state(), sent=tuple(self._sent.items()), received=dict(self._received), open=open_)
        self._logging[snapshot] = logging
        barriers = tuple(SendMarker(channel=one, snapshot=snapshot) for one in self._sent)  # rule 3
        return (Cut(snapshot=snapshot, state=logging.state), *barriers, *self._finish(snapshot, logging))

    def _log(self, snapshot: SnapshotId, logging: _Logging[S, M], on: Channel, message: M) -> tuple[Effect[S, M], ...]:
        if on not in logging.open or logging.abandoned:
            return ()
        if logging.kept == self._messages_max:
            return self._abandon(snapshot, logging, AbandonReason.TOO_MANY_MESSAGES)
        logging.open[on].append(message)  # rule 4
        logging.kept += 1
        return ()

    def _marked_back(self, on: Channel, snapshot: SnapshotId) -> tuple[Effect[S, M], ...]:
        """The barrier of ``snapshot`` arrived on a back edge (rule 4)."""
        if not self._settled(snapshot):
            if on in self._early:
                raise MarkerError(f"{self._process} received a second barrier on {on} while it was held")
            self._early[on] = snapshot
            return (Hold(channel=on),)
        if snapshot in self._given_up:
            return ()
        if snapshot not in self._logging or on not in self._logging[snapshot].open:
            raise MarkerError(f"{self._process} received a second barrier of snapshot {snapshot} on {on}")
        return self._close(snapshot, on)

    def _close(self, snapshot: SnapshotId, on: Channel) -> tuple[Effect[S, M], ...]:
        logging = self._logging[snapshot]
        logging.closed[on] = tuple(logging.open.pop(on))
        return self._finish(snapshot, logging)

    def _finish(self, snapshot: SnapshotId, logging: _Logging[S, M]) -> tuple[Effect[S, M], ...]:
        if logging.open:
            return ()
        del self._logging[snapshot]
        if logging.abandoned:
            return ()
        incoming = tuple(
            ChannelRecord(channel=one, received=count, messages=logging.closed.get(one, ()))
            for one, count in logging.received.items()
        )
        record = LocalRecord(
            snapshot=snapshot, process=self._process, state=logging.state, incoming=incoming, sent=logging.sent
        )
        return (Finished(record=record),)

    def _abandon_alignment(self, reason: AbandonReason) -> tuple[Effect[S, M], ...]:
        aligning = self._aligning
        assert aligning is not None
        self._aligning = None
        self._passes(aligning.snapshot)
        return (Abandoned(snapshot=aligning.snapshot, reason=reason), *self._release(aligning.held))

    def _passes(self, snapshot: SnapshotId) -> None:
        self._newest = max(self._newest, snapshot)
        self._given_up = {one for one in self._given_up if one > self._newest}

    def _abandon(self, snapshot: SnapshotId, logging: _Logging[S, M], reason: AbandonReason) -> tuple[Effect[S, M], ...]:
        if logging.abandoned:
            return ()
        logging.abandoned = True
        for kept in logging.open.values():
            kept.clear()
        logging.closed.clear()
        return (Abandoned(snapshot=snapshot, reason=reason),)

    def _expect(self, on: Channel) -> None:
        if on not in self._received:
            raise MarkerError(f"{self._process} has no incoming channel {on}")
