"""The detector's requests to this process besides markers: looks, cures, and stacks."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator

from stilltrue.protocol.requests.cure import Cured, CureRequest
from stilltrue.protocol.requests.look import Look, LookRequest
from stilltrue.protocol.requests.stacks import StacksFound
from stilltrue.protocol.wire.cure import cure_from_wire, cured_to_wire
from stilltrue.protocol.wire.look import look_to_wire, request_from_wire
from stilltrue.protocol.wire.stacks import found_to_wire
from stilltrue.runtime.locked_recorder import LockedRecorder
from stilltrue.runtime.log_queue import LOG
from stilltrue.v1 import agent_pb2 as pb

ANSWERS_MAX = 64
"""Maximum number of answers that wait to be sent. A dropped answer is doubt."""


class DetectorRequests:
    """Answers each request when it arrives, and keeps the answers until the stream takes them.

    Looks and stacks have threads of their own: they may be slow, and markers must not wait for them.
    """

    def __init__(
        self,
        live: LockedRecorder,
        wake_sender: Callable[[], None],
        look: Callable[[LookRequest], Look] | None,
        cure: Callable[[CureRequest], Cured] | None,
        stacks: Callable[[int], StacksFound] | None,
    ) -> None:
        """``wake_sender`` is called after each answer; without ``cure`` or ``stacks``, such requests are ignored."""
        self._live = live
        self._wake_sender = wake_sender
        self._look = look or live.look
        self._cure = cure
        self._stacks = stacks
        self._answers: deque[pb.ConnectRequest] = deque(maxlen=ANSWERS_MAX)
        self._looks: deque[LookRequest] = deque(maxlen=ANSWERS_MAX)
        """The requests that wait to be looked at."""
        self.looking = threading.Lock()
        """Held during looks, and by a thread that forks."""

    @property
    def cures(self) -> bool:
        """Whether this process allows an operator to abort its calls."""
        return self._cure is not None

    @property
    def stacks(self) -> bool:
        """Whether this process can report its parties' stacks."""
        return self._stacks is not None

    def handle(self, response: pb.ConnectResponse) -> None:
        """Answer a request; ignore any other message."""
        kind = response.WhichOneof("message")
        if kind == "look":
            self._looks.append(request_from_wire(response.look))
            try:
                threading.Thread(target=self._take_looks, name="stilltrue-agent-look", daemon=True).start()
            except RuntimeError:  # no more threads
                self._take_looks()
        elif kind == "cure" and self._cure is not None:
            cured = self._run_cure(self._cure, cure_from_wire(response.cure))
            self._send(pb.ConnectRequest(cured=cured_to_wire(cured)))
        elif kind == "stacks" and self._stacks is not None:
            arguments = (self._stacks, response.stacks.number)
            threading.Thread(target=self._find_stacks, args=arguments, name="stilltrue-agent-stacks", daemon=True).start()

    def answers(self) -> Iterator[pb.ConnectRequest]:
        """Take the waiting answers, oldest first."""
        while self._answers:
            yield self._answers.popleft()

    def _take_looks(self) -> None:
        """Take all looks that have been asked for, one at a time, unless another thread is doing so."""
        while self._looks and self.looking.acquire(blocking=False):
            try:
                self._send(pb.ConnectRequest(looked=look_to_wire(self._answer_look(self._looks.popleft()))))
            finally:
                self.looking.release()

    def _send(self, answer: pb.ConnectRequest) -> None:
        self._answers.append(answer)
        self._wake_sender()

    def _answer_look(self, request: LookRequest) -> Look:
        """The look for a verification round; empty if it fails, which is doubt."""
        try:
            return self._look(request)
        except Exception:  # noqa: BLE001 - the stream must outlive a failed look
            self._live.report_failure("taking a look")
            return Look(snapshot=request.snapshot)

    def _run_cure(self, cure: Callable[[CureRequest], Cured], request: CureRequest) -> Cured:
        cured = cure(request)
        for one in cured.parties:
            text = "cure: incident=%s party=%s aborted=%s: %s"
            LOG.warning(text, request.incident, one.party, str(one.aborted).lower(), one.text)
        return cured

    def _find_stacks(self, find: Callable[[int], StacksFound], number: int) -> None:
        try:
            found = find(number)
        except Exception:  # noqa: BLE001 - fail open
            self._live.report_failure("looking for stacks")
            return
        self._send(pb.ConnectRequest(stacks_found=found_to_wire(found)))
