"""What the detector asks of this process besides markers: second looks, cures, and what its parties stand in."""

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
from stilltrue.runtime.lines import LINES
from stilltrue.runtime.recorder import LockedRecorder
from stilltrue.v1 import agent_pb2 as pb

ANSWERS_MAX = 64
"""Answers that wait to be sent; what is dropped counts as no answer: doubt."""


class DetectorRequests:
    """Answers each request as it comes; the answers wait here until the stream takes them."""

    def __init__(
        self,
        live: LockedRecorder,
        ring: Callable[[], None],
        look: Callable[[LookRequest], Look] | None,
        cure: Callable[[CureRequest], Cured] | None,
        stacks: Callable[[int], StacksFound] | None,
    ) -> None:
        """``ring`` says that there is an answer; without ``cure`` or ``stacks`` such requests get none."""
        self._live = live
        self._ring = ring
        self._look = look or live.look
        self._cure = cure
        self._stacks = stacks
        self._answers: deque[pb.ConnectRequest] = deque(maxlen=ANSWERS_MAX)

    @property
    def cures(self) -> bool:
        """Whether an operator may have calls of this process aborted."""
        return self._cure is not None

    @property
    def stacks(self) -> bool:
        """Whether this process can say what its parties stand in."""
        return self._stacks is not None

    def handle(self, response: pb.ConnectResponse) -> None:
        """Answer a request; any other message is left alone."""
        kind = response.WhichOneof("message")
        if kind == "look":
            self._send(pb.ConnectRequest(looked=look_to_wire(self._seen(request_from_wire(response.look)))))
        elif kind == "cure" and self._cure is not None:
            cured = self._cured(self._cure, cure_from_wire(response.cure))
            self._send(pb.ConnectRequest(cured=cured_to_wire(cured)))
        elif kind == "stacks" and self._stacks is not None:
            arguments = (self._stacks, response.stacks.number)  # it may take its time
            threading.Thread(target=self._find_stacks, args=arguments, name="stilltrue-stacks", daemon=True).start()

    def answers(self) -> Iterator[pb.ConnectRequest]:
        """The answers that wait, oldest first; each is taken once."""
        while self._answers:
            yield self._answers.popleft()

    def _send(self, answer: pb.ConnectRequest) -> None:
        self._answers.append(answer)
        self._ring()

    def _seen(self, request: LookRequest) -> Look:
        """What the verification round asks for; of what cannot be looked at nothing is said: doubt."""
        try:
            return self._look(request)
        except Exception:  # noqa: BLE001 - the stream must outlive a look that fails
            self._live.report_failure("a look")
            return Look(snapshot=request.snapshot)

    def _cured(self, cure: Callable[[CureRequest], Cured], request: CureRequest) -> Cured:
        cured = cure(request)
        for one in cured.parties:
            text = "cure: incident=%s party=%s aborted=%s: %s"
            LINES.warning(text, request.incident, one.party, str(one.aborted).lower(), one.text)
        return cured

    def _find_stacks(self, find: Callable[[int], StacksFound], number: int) -> None:
        try:
            found = find(number)
        except Exception:  # noqa: BLE001 - the application must not notice
            self._live.report_failure("a look for stacks")
            return
        self._send(pb.ConnectRequest(stacks_found=found_to_wire(found)))
