"""The commands of transcripts: real recorders, initiator and predicates; the network moves one item per command.

Processes and the detector:

- ``process NAME [reactive]``, ``pool NAME POOL SIZE``, ``idle NAME``, ``active NAME``, ``fact NAME key=value ...``
- ``lose NAME``: its stream to the detector ends. ``tick SECONDS``: time passes.
- ``ask``: a question requests a snapshot. ``marker NAME``: the next marker reaches it. ``report NAME``: its next report
  reaches the detector. ``verdict PREDICATE [key=value ...]``: the verdict on the newest snapshot.
- ``suspect``: a verification round about the parties that seem stuck in it. ``look NAME``: a process looks again.

Calls (CALL is a word of the transcript's own):

- ``call CALL by PARTY METHOD [waiting] [for SECONDS] [moving key=value ...] [then key=value ...]``: ``moving`` travels with it.
- ``arrives CALL at NAME [behind POOL] [colourless]``, ``stranger CALL METHOD at NAME [behind POOL]``: one without a stamp.
- ``starts CALL at NAME``, ``takes CALL at NAME key=value ...``, ``replies CALL at NAME [moving ...] [then ...]``;
  ``hangs-up CALL at NAME``
- ``returns CALL [from NAME] [then ...]``: the reply reaches the caller. ``fails CALL``: its caller does not know the outcome.

Waits:

- ``waits PARTY for TARGET [or TARGET ...]`` (all of them: ``and``), where a target is a CALL, ``lock:NAME`` or a party;
  ``resumes PARTY``; ``holds PARTY LOCK [CAPACITY]``, ``releases PARTY LOCK``
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from detector.core.protocol.assembler import Assembled
from detector.core.protocol.initiator import Begin, Effect, Finish, Initiator, Refuse
from detector.core.protocol.pace import Timing
from detector.core.registry import ask, find_predicate
from detector.core.verification.suspicion import suspicion_of
from detector.core.verification.verifier import AskLook, RoundEffect, Verified, Verifier
from detector.simulator.scenario.language import facts_of, split_at
from stilltrue.model import CallNumber, PartyName, ProcessId, ProcessName, SnapshotId, WaitNumber, process_of
from stilltrue.protocol.books.ledger import ChannelRecord, ClientCall, ServerCall
from stilltrue.protocol.recorder import Recorder
from stilltrue.protocol.report import CallTarget, PartyTarget, Report, ResourceTarget, Target
from stilltrue.protocol.requests.look import LookRequest
from stilltrue.protocol.stamp import Stamp
from stilltrue.protocol.step import Step
from tests.simulator.transcript.words import assembled_in_words, report_in_words, stamp_in_words, verdict_in_words

GIVE_UP_SECONDS = 2.0


@dataclass(slots=True)
class _Call:
    """One call: its caller's record, its stamp, and the stamps of its replies."""

    made: ClientCall
    caller: ProcessName
    stamp: Stamp
    replies: dict[ProcessName, Stamp | None] = field(default_factory=dict)


class Stage:
    """Executes commands; each returns its lines of output."""

    def __init__(self) -> None:
        self._now = 0.0
        self._recorders: dict[ProcessName, Recorder] = {}
        self._channels: dict[ProcessName, ChannelRecord] = {}
        self._calls: dict[str, _Call] = {}
        self._served: dict[tuple[str, ProcessName], ServerCall] = {}
        self._waits: dict[PartyName, list[WaitNumber]] = {}
        self._markers: dict[ProcessName, deque[tuple[SnapshotId, tuple[CallNumber, ...]]]] = {}
        self._reports: dict[ProcessName, deque[Report]] = {}
        self._initiator = Initiator(Timing(period_seconds=0, give_up_seconds=GIVE_UP_SECONDS))
        self._newest: Assembled | None = None
        self._verifier = Verifier()
        self._looks: dict[ProcessName, tuple[ProcessId, LookRequest]] = {}
        self._commands: dict[str, Callable[[Sequence[str]], Iterator[str]]] = {
            "process": self._process,
            "pool": self._pool,
            "idle": self._idle,
            "active": self._active,
            "fact": self._fact,
            "lose": self._lose,
            "tick": self._tick,
            "ask": self._ask,
            "marker": self._marker,
            "report": self._report,
            "verdict": self._verdict,
            "suspect": self._suspect,
            "look": self._look,
            "call": self._call,
            "arrives": self._arrives,
            "stranger": self._stranger,
            "starts": self._starts,
            "takes": self._takes,
            "replies": self._replies,
            "hangs-up": self._hangs_up,
            "returns": self._returns,
            "fails": self._fails,
            "waits": self._wait,
            "resumes": self._resumes,
            "holds": self._holds,
            "releases": self._releases,
        }

    def do(self, words: Sequence[str]) -> list[str]:
        """Execute one command; raises ValueError or LookupError if that is impossible."""
        if words[0] not in self._commands:
            raise ValueError(f"unknown command; known: {', '.join(self._commands)}")
        return list(self._commands[words[0]](words[1:]))

    # -- processes and the detector ------------------------------------------------------------------------------------

    def _process(self, words: Sequence[str]) -> Iterator[str]:
        name = ProcessName(words[0])
        process = ProcessId(service=name, instance=name, incarnation=1)
        self._recorders[name] = Recorder(process=process, reactive="reactive" in words)
        self._channels[name] = ChannelRecord("the others")
        self._markers[name] = deque()
        self._reports[name] = deque()
        yield from self._obey(self._initiator.joined(process, SnapshotId(0), self._now))

    def _pool(self, words: Sequence[str]) -> Iterator[str]:
        self._recorder(words[0]).pool_opened(words[1], int(words[2]))
        yield from ()

    def _idle(self, words: Sequence[str]) -> Iterator[str]:
        self._recorder(words[0]).idle()
        yield from ()

    def _active(self, words: Sequence[str]) -> Iterator[str]:
        self._recorder(words[0]).active()
        yield from ()

    def _fact(self, words: Sequence[str]) -> Iterator[str]:
        self._recorder(words[0]).fact(facts_of(words[1:]))
        yield from ()

    def _lose(self, words: Sequence[str]) -> Iterator[str]:
        yield from self._obey(self._initiator.left(ProcessName(words[0]), self._now))

    def _tick(self, words: Sequence[str]) -> Iterator[str]:
        self._now += float(words[0])
        yield from self._obey(self._initiator.ticked(self._now))

    def _ask(self, _words: Sequence[str]) -> Iterator[str]:
        yield from self._obey(self._initiator.asked(0, self._now))

    def _marker(self, words: Sequence[str]) -> Iterator[str]:
        name = ProcessName(words[0])
        snapshot, settled = self._markers[name].popleft()
        if settled:
            self._recorder(name).doubts_settled(settled)
            yield f"{name} learns that call {', '.join(map(str, settled))} was answered"
        report = self._recorder(name).marked(snapshot, self._now)
        if report is None:
            yield f"{name} has cut for snapshot {snapshot} already"
        yield from self._cut(report)

    def _report(self, words: Sequence[str]) -> Iterator[str]:
        yield from self._obey(self._initiator.reported(self._reports[ProcessName(words[0])].popleft(), self._now))

    def _verdict(self, words: Sequence[str]) -> Iterator[str]:
        if self._newest is None:
            raise ValueError("no snapshot has ended")
        yield from verdict_in_words(ask(find_predicate(words[0], facts_of(words[1:])), self._newest.snapshot))

    def _suspect(self, _words: Sequence[str]) -> Iterator[str]:
        if self._newest is None:
            raise ValueError("no snapshot has ended")
        suspicion = suspicion_of(self._newest.snapshot, with_idle=False)
        yield from self._verify(self._verifier.suspected(self._newest, suspicion, self._now))

    def _look(self, words: Sequence[str]) -> Iterator[str]:
        name = ProcessName(words[0])
        process, request = self._looks.pop(name)
        look = self._recorder(name).look(request, self._now)
        for seen in look.parties:
            yield f"{seen.party} is {'in the same waits' if seen.unchanged else 'not in the same waits any more'}"
        yield from self._verify(self._verifier.looked(process, look, self._now))

    def _verify(self, effects: Sequence[RoundEffect]) -> Iterator[str]:
        for effect in effects:
            match effect:
                case AskLook(process=process, request=request):
                    self._looks[process.instance] = (process, request)
                    parties = ", ".join(suspect.party for suspect in request.suspects)
                    yield f"{process.instance} is asked to look again at {parties}"
                case Verified(assembled=assembled):
                    self._newest = assembled
                    yield "the verification round is over"

    def _obey(self, effects: Sequence[Effect]) -> Iterator[str]:
        for effect in effects:
            match effect:
                case Begin(snapshot=snapshot, members=members, settled=settled):
                    yield f"snapshot {snapshot} begins: markers to {', '.join(members)}"
                    for name in members:
                        self._markers[name].append((snapshot, tuple(settled.get(name, ()))))
                case Finish(assembled=assembled):
                    self._newest = assembled
                    yield from assembled_in_words(assembled)
                    if assembled.orphans and assembled.snapshot.ref.id is not None:
                        yield from (f"  {text}" for text in self._initiator.story(assembled.snapshot.ref.id))
                case Refuse(process=process, reason=reason):
                    yield f"{process}'s report is not taken: {reason.value}"

    # -- calls ---------------------------------------------------------------------------------------------------------

    def _call(self, words: Sequence[str]) -> Iterator[str]:
        label, party, method = words[0], PartyName(words[2]), words[3]
        parts = split_at(words[4:], "moving", "then")
        options = parts[""]
        seconds = float(options[options.index("for") + 1]) if "for" in options else None
        name = process_of(party)
        step = _step(parts)
        made, stamp = self._recorder(name).sent(
            method=method,
            channel=self._channels[name],
            now=self._now,
            party=party,
            deadline=None if seconds is None else self._now + seconds,
            waiting="waiting" in options,
            step=step,
        )
        self._recorder(name).closed(step, self._now)
        self._calls[label] = _Call(made, name, stamp)
        yield stamp_in_words(stamp)

    def _arrives(self, words: Sequence[str]) -> Iterator[str]:
        call = self._calls[words[0]]
        stamp = call.stamp._replace(colour=SnapshotId(0)) if "colourless" in words else call.stamp
        yield from self._arrive(stamp, call.made.method, words[0], words[2:])

    def _stranger(self, words: Sequence[str]) -> Iterator[str]:
        yield from self._arrive(None, words[1], words[0], words[3:])

    def _arrive(self, stamp: Stamp | None, method: str, label: str, words: Sequence[str]) -> Iterator[str]:
        name = ProcessName(words[0])
        pool = words[words.index("behind") + 1] if "behind" in words else ""
        served, report = self._recorder(name).arrived(stamp, method=method, now=self._now, pool=pool)
        self._served[label, name] = served
        yield from self._cut(report)
        yield f"{served.party} has arrived"

    def _starts(self, words: Sequence[str]) -> Iterator[str]:
        self._recorder(words[2]).started(self._server_call(words))
        yield from ()

    def _takes(self, words: Sequence[str]) -> Iterator[str]:
        step = Step(self._server_call(words))
        step.takes()
        step.fact(**facts_of(words[3:]))
        self._recorder(words[2]).closed(step, self._now)
        yield from ()

    def _replies(self, words: Sequence[str]) -> Iterator[str]:
        name, parts = ProcessName(words[2]), split_at(words[3:], "moving", "then")
        recorder, served = self._recorder(name), self._server_call(words)
        step = _step(parts, served)
        step.with_reply()
        recorder.closed(step, self._now)
        stamp = recorder.replied(served)
        self._calls[words[0]].replies[name] = stamp
        yield stamp_in_words(stamp)

    def _hangs_up(self, words: Sequence[str]) -> Iterator[str]:
        self._recorder(words[2]).hung_up(self._server_call(words))
        yield from ()

    def _returns(self, words: Sequence[str]) -> Iterator[str]:
        call, parts = self._calls[words[0]], split_at(words[1:], "then")
        server = ProcessName(parts[""][1]) if parts[""] else next(iter(call.replies))
        recorder = self._recorder(call.caller)
        report = recorder.settled(call.made, call.replies[server], self._now)
        recorder.fact(facts_of(parts.get("then", ())))
        yield from self._cut(report)

    def _fails(self, words: Sequence[str]) -> Iterator[str]:
        call = self._calls[words[0]]
        yield from self._cut(self._recorder(call.caller).settled(call.made, None, self._now, in_doubt=True))

    # -- waits ---------------------------------------------------------------------------------------------------------

    def _wait(self, words: Sequence[str]) -> Iterator[str]:
        party, rest = PartyName(words[0]), words[2:]
        targets = [self._target(word) for word in rest if word not in {"and", "or"}]
        needs = len(targets) if "and" in rest else 1
        number = self._recorder(process_of(party)).waits(party, targets, self._now, needs=needs, what="")
        self._waits.setdefault(party, []).append(number)
        yield from ()

    def _resumes(self, words: Sequence[str]) -> Iterator[str]:
        party = PartyName(words[0])
        for number in self._waits.pop(party, []):
            self._recorder(process_of(party)).resumes(number)
        yield from ()

    def _holds(self, words: Sequence[str]) -> Iterator[str]:
        party, capacity = PartyName(words[0]), int(words[2]) if len(words) > 2 else 1
        self._recorder(process_of(party)).holds(party, words[1], capacity)
        yield from ()

    def _releases(self, words: Sequence[str]) -> Iterator[str]:
        party = PartyName(words[0])
        self._recorder(process_of(party)).releases(party, words[1])
        yield from ()

    def _target(self, word: str) -> Target:
        if word.startswith("lock:"):
            return ResourceTarget(resource=word.removeprefix("lock:"))
        if word in self._calls:
            return CallTarget(number=self._calls[word].made.number)
        return PartyTarget(party=PartyName(word))

    # -- what commands name --------------------------------------------------------------------------------------------

    def _recorder(self, name: str) -> Recorder:
        return self._recorders[ProcessName(name)]

    def _server_call(self, words: Sequence[str]) -> ServerCall:
        return self._served[words[0], ProcessName(words[2])]

    def _cut(self, report: Report | None) -> Iterator[str]:
        if report is not None:
            self._reports[report.process.instance].append(report)
            yield from report_in_words(report)


def _step(parts: Mapping[str, Sequence[str]], served: ServerCall | None = None) -> Step:
    """The step of one message, with the facts that move and those set afterwards."""
    step = Step(served)
    step.carries(**facts_of(parts.get("moving", ())))
    step.fact(**facts_of(parts.get("then", ())))
    return step
