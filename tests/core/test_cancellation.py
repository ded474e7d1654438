"""A party that may cancel a handler is a way out of all its waits; call copies, lost connections, former incarnations."""

from __future__ import annotations

from collections.abc import Callable

from detector.core.protocol.assembler import Assembled, PendingSnapshot
from detector.predicates.deadlock import Deadlock
from stilltrue.model import Holds, PartyName, ProcessId, ProcessName, SnapshotId, Verdict, WaitNumber
from stilltrue.protocol.books.ledger import ChannelRecord, ServerCall
from stilltrue.protocol.observation import Observation, observe_nothing
from stilltrue.protocol.recorder import Recorder
from stilltrue.protocol.report import OBSERVED_MIN, CallTarget, LocalWait, PartyTarget, ResourceTarget

TASK = PartyName("caller/task")


class Held:
    """A caller, and a server whose handler is stuck by itself, since it waits for a lock that it holds."""

    def __init__(self, *, interruptible: bool = True, copies_max: int = 1, hedged: bool = False) -> None:
        self.awaiting: list[tuple[PartyName, PartyName]] = []
        self.server = _recorder("server", observe=self.observe)
        self.caller, self.other = (_recorder(name) for name in ("caller", "other"))
        self.channel = ChannelRecord("server:1", copies_max=copies_max, hedged=hedged)
        for server in (self.server, self.other):
            self._answers(server)
        self.made, self.stamp = self.caller.sent(method="/s/Do", channel=self.channel, now=0.0, party=TASK)
        self.handle = self.arrives(self.server, interruptible=interruptible)
        self.server.holds(self.handle.party, "server/lock")
        self.waits = self.server.waits(self.handle.party, [ResourceTarget(resource="server/lock")], 0.0)

    def observe(self, _: float) -> Observation:
        """Only the server observes tasks that await each other."""
        waits = tuple(
            LocalWait(waiter=waiter, number=WaitNumber(OBSERVED_MIN + number), among=(PartyTarget(party=task),))
            for number, (waiter, task) in enumerate(self.awaiting)
        )
        return Observation(waits=waits)

    def nest(self) -> tuple[PartyName, ...]:
        """The handler awaits a task, which awaits another one that holds the lock and waits for it."""
        deeper = (PartyName("server/Do#2.Task-1"), PartyName("server/Do#2.Task-2"))
        server, handler = self.server, self.handle.party
        server.releases(handler, "server/lock")
        server.holds(deeper[-1], "server/lock")
        self.awaiting = [(handler, deeper[0]), deeper]
        server.waits(deeper[-1], [ResourceTarget(resource="server/lock")], 0.0)
        server.resumes(self.waits)
        return deeper

    def arrives(self, server: Recorder, *, interruptible: bool = False) -> ServerCall:
        served, _ = server.arrived(self.stamp, method="/s/Do", now=0.0, interruptible=interruptible)
        server.started(served)
        return served

    def _answers(self, server: Recorder) -> None:
        made, stamp = self.caller.sent(method="/s/Do", channel=self.channel, now=0.0)
        served, _ = server.arrived(stamp, method="/s/Do", now=0.0)
        self.caller.settled(made, server.replied(served), 0.0)

    def assembled(self, number: int = 1) -> Assembled:
        recorders = (self.caller, self.server, self.other)
        members = {recorder.process.instance: recorder.process for recorder in recorders}
        pending = PendingSnapshot(snapshot=SnapshotId(number), members=members, begun=float(number), begun_by="test")
        for recorder in recorders:
            report = recorder.marked(SnapshotId(number), float(number))
            assert report is not None
            assert pending.offer(report) is None
        return pending.assembled(number + 0.5)

    def verdict(self) -> Verdict:
        return Deadlock().evaluate(self.assembled().snapshot)


def _recorder(name: str, incarnation: int = 1, observe: Callable[[float], Observation] = observe_nothing) -> Recorder:
    process = ProcessId(service=name, instance=ProcessName(name), incarnation=incarnation)
    return Recorder(process=process, observe=observe)


def test_a_caller_that_is_free_to_cancel_frees_the_handler() -> None:
    assert Held().verdict().holds is Holds.FALSE


def test_a_handler_that_ignores_cancellation_is_stuck_anyway() -> None:
    assert Held(interruptible=False).verdict().remainder == ("server/Do#2",)


def test_a_caller_that_waits_for_the_call_is_behind_and_not_a_way_out() -> None:
    held = Held()
    held.caller.awaits(held.made, 0.0)
    verdict = held.verdict()
    assert (verdict.core, verdict.behind) == (("server/Do#2",), (TASK,))


def test_a_callers_cancellation_ends_the_waits_of_a_handlers_task() -> None:
    for interruptible, holds in ((True, Holds.FALSE), (False, Holds.TRUE)):
        held = Held(interruptible=interruptible)
        deeper = held.nest()
        assert held.verdict().holds is holds
        held.caller.awaits(held.made, 0.0)  # the caller is bound now
        verdict = Deadlock().evaluate(held.assembled(2).snapshot)
        assert verdict.core == deeper[-1:]
        assert set(verdict.behind) == {TASK, held.handle.party, *deeper[:-1]}


def test_a_caller_that_races_may_cancel_the_loser() -> None:
    held = Held()
    other, _ = held.caller.sent(method="/x/Do", channel=ChannelRecord("elsewhere"), now=0.0, party=TASK)
    held.caller.waits(TASK, [CallTarget(number=held.made.number), CallTarget(number=other.number)], 0.0)
    assert held.verdict().holds is Holds.FALSE


def test_an_abandoned_call_is_about_to_be_cancelled() -> None:
    held = Held()
    held.caller.settled(held.made, None, 0.0, in_doubt=True)
    assert held.verdict().holds is Holds.FALSE


def test_a_handler_that_continued_without_its_caller_is_stuck() -> None:
    held = Held()
    held.caller.settled(held.made, None, 0.0, in_doubt=True)
    held.server.hung_up(held.handle)
    assert held.verdict().holds is Holds.TRUE


def test_the_server_of_a_call_that_may_be_retried_is_in_doubt() -> None:
    held = Held(copies_max=2)
    held.caller.waits(TASK, [CallTarget(number=held.made.number)], 0.0)
    assert held.verdict().holds is Holds.UNDETERMINED


def test_a_server_that_lost_its_caller_is_not_waited_for() -> None:
    held = Held(interruptible=False, copies_max=2)
    held.caller.awaits(held.made, 0.0)
    held.server.hung_up(held.handle)
    assert TASK not in held.verdict().remainder


def test_a_hedged_call_may_have_a_copy_in_transit_until_all_have_arrived() -> None:
    held = Held(interruptible=False, copies_max=2, hedged=True)
    held.caller.awaits(held.made, 0.0)
    assert held.verdict().remainder == ("server/Do#2",)
    held.arrives(held.other)
    held.other.waits(PartyName("other/Do#2"), [ResourceTarget(resource="server/lock")], 0.0)
    verdict = Deadlock().evaluate(held.assembled(2).snapshot)
    assert verdict.remainder == (TASK, "other/Do#2", "server/Do#2")


def test_a_hedged_call_that_was_answered_is_in_doubt_while_a_copy_may_be_in_transit() -> None:
    held = Held(interruptible=False, copies_max=2, hedged=True)
    held.caller.settled(held.made, held.server.replied(held.handle), 0.0)
    report = held.caller.marked(SnapshotId(1), 0.0)
    assert report is not None
    assert [call.doubtful for call in report.made if call.number == held.made.number] == [True]


def test_a_caller_stuck_for_certain_is_a_doubtful_way_out_of_a_handler_that_may_be_left_behind() -> None:
    held = Held(copies_max=2)
    held.caller.holds(TASK, "caller/lock")
    held.caller.waits(TASK, [ResourceTarget(resource="caller/lock")], 0.0)
    assert held.verdict().remainder == (TASK,)


def test_a_caller_whose_call_has_a_deadline_may_cancel_the_handler_then() -> None:
    held = Held()
    held.made.deadline = 9.0
    held.caller.waits(TASK, [CallTarget(number=held.made.number)], 0.0)
    assert held.verdict().holds is Holds.FALSE


def test_a_caller_that_waits_until_a_deadline_may_cancel_the_handler_then() -> None:
    held = Held()
    held.caller.waits(TASK, [CallTarget(number=held.made.number)], 0.0, deadline=9.0)
    assert held.verdict().holds is Holds.FALSE
