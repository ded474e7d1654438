"""The waits that a program behind a sidecar may be in: they withhold a FALSE, and support no TRUE."""

from __future__ import annotations

from typing import Any

from detector.core.protocol.assembler import PendingSnapshot
from detector.core.verification.suspicion import suspicion_of
from detector.core.verification.verifier import AskLook, Verified, Verifier
from detector.predicates.deadlock import Deadlock
from detector.sidecar.tracking.possible_waits import SUSPECTED_MAX, UNACTED_SECONDS
from stilltrue.model import Holds, PartyName, ProcessName, SnapshotId, Verdict
from stilltrue.protocol.stamp import Stamp, decode
from tests.sidecar.beside import Beside


def test_somebody_unknown_made_each_call_of_no_known_caller() -> None:
    beside = Beside(workers=1)
    call = beside.calls()
    assert beside.possible == {"orders/unknown-caller:Reserve#1": {"1"}}
    assert "who made /s/Reserve is unknown" in (doubt := beside.doubt("orders/unknown-caller:Reserve#1"))
    assert "stilltrue doctor" in doubt
    beside.program.settles(call, None, in_doubt=False)
    assert beside.possible == {}


def test_a_call_in_progress_may_have_made_the_later_ones_of_unknown_callers() -> None:
    beside = Beside(workers=9)
    beside.calls()
    beside.now += 1
    beside.comes()
    beside.now += 1
    beside.calls()
    beside.now += 1
    beside.comes()
    assert beside.possible["orders/Place#1"] == {"orders/unknown-caller:Reserve#2"}
    assert "orders/Place#2" not in beside.possible
    assert beside.doubt("orders/Place#1") == "", "the doubt is about whoever made the call"


def test_a_call_in_a_known_wait_has_made_no_other_call() -> None:
    beside = Beside(workers=9)
    beside.comes("t1")
    beside.calls("t1")
    beside.calls()
    assert set(beside.possible) == {"orders/unknown-caller:Reserve#2"}


def test_nobody_in_progress_made_a_call_under_the_party_of_one_that_has_ended() -> None:
    beside = Beside(workers=9)
    beside.comes()
    beside.calls(party="orders/Place#77")
    assert set(beside.possible) == {"orders/unknown-caller:Reserve#1"}


def test_no_inbound_call_waits_for_a_method_declared_as_never_awaited() -> None:
    beside = Beside(workers=9, never_awaited=["/s/Reserve"])
    beside.comes("t1")
    beside.calls("t1")
    beside.calls()
    assert set(beside.possible) == {"orders/calls-of:Place#1", "orders/unknown-caller:Reserve#2"}, "they may still cancel it"


def test_a_party_may_wait_for_a_stream_for_the_rest_of_a_fan_out_and_for_a_method_that_is_not_always_awaited() -> None:
    stream, rest, distrusted = (Beside(workers=9) for _ in range(3))
    for beside in (stream, rest, distrusted):
        beside.comes("t1")
    stream.program.answering(stream.calls("t1"))
    rest.program.settles(rest.calls("t1"), None, in_doubt=False)
    first = rest.calls("t1")
    rest.calls("t1")
    rest.program.settles(first, None, in_doubt=False)
    distrusted.program.cancels(distrusted.calls("t1"))
    distrusted.later()
    assert distrusted.program.distrusted == ["/s/Reserve"]
    distrusted.calls("t1")
    for beside, number in ((stream, "1"), (rest, "3"), (distrusted, "2")):
        assert beside.waits == {}
        assert beside.possible == {"orders/Place#1": {"orders/calls-of:Place#1"}, "orders/calls-of:Place#1": {number}}
        assert "not known whether orders/Place#1 waits" in beside.doubt("orders/calls-of:Place#1")


def test_a_handler_whose_caller_gave_up_may_still_wait_and_keep_its_worker() -> None:
    beside = Beside(workers=1)
    first = beside.comes("t1")
    beside.calls("t1")
    beside.program.leaves(first)
    assert beside.possible == {"orders/Place#1": {"1"}}
    second = beside.comes("t2")
    assert beside.possible == {"orders/Place#1": {"1"}, "orders/Place#2": {"orders/Place#1"}}
    assert "its own call has ended" in beside.doubt("orders/Place#1")
    beside.program.answers(second)
    assert beside.possible == {"orders/Place#1": {"1"}}, "it acts, so it has a worker"


def test_with_workers_to_spare_nothing_is_queued_behind_a_handler_whose_caller_gave_up() -> None:
    beside = Beside(workers=2)
    first = beside.comes("t1")
    beside.calls("t1")
    beside.program.leaves(first)
    beside.comes("t2")
    assert beside.possible == {"orders/Place#1": {"1"}}


def test_behind_a_pool_of_unknown_size_a_call_that_has_not_acted_for_a_while_may_be_queued() -> None:
    beside = Beside()
    beside.comes("t1")
    beside.calls("t1")
    beside.comes("t2")
    assert beside.possible == {}
    beside.later(UNACTED_SECONDS)
    queue = "orders/queue-for:Place#2"
    assert beside.possible == {"orders/Place#2": {queue}, queue: {"orders/Place#1"}}
    assert "(--workers; see stilltrue doctor)" in beside.doubt(queue)


def test_a_call_is_said_to_wait_for_a_bounded_number_of_others() -> None:
    beside = Beside(workers=9)
    beside.comes()
    beside.now += 1
    for _ in range(3 * SUSPECTED_MAX):
        beside.calls()
    assert len(beside.possible["orders/Place#1"]) == SUSPECTED_MAX
    assert "orders/unknown-caller:Reserve#1" in beside.possible["orders/Place#1"], "the oldest"


# -- the verdict -------------------------------------------------------------------------------------------------------


class Pair:
    """Orders and stock, each with one worker, behind sidecars; they call each other."""

    def __init__(self, **more: Any) -> None:
        self.orders = Beside(**more)
        self.stock = Beside("stock", **more)
        self._snapshots = 0

    def calls(self, source: Beside, target: Beside, trace: str, *, forwarded: bool = True) -> None:
        """``source`` makes a call, which arrives at ``target`` under ``trace``; ``forwarded``: it names its own caller."""
        for side in (self.orders, self.stock):
            side.now += 0.01
        call, pair = source.program.calls(
            "/s/Place", source.channel, None, traces=(trace.encode(),) if forwarded else (), party=""
        )
        source.program.asked(call)
        target.program.arrives("/s/Place", _stamp(pair[1]), None, (trace.encode(),))

    def ask(self) -> Verdict:
        """Take a snapshot a second later, look again, and evaluate."""
        self._snapshots += 1
        sides = {side.live.recorder.process: side for side in (self.orders, self.stock)}
        for side in sides.values():
            side.later()
        snapshot = SnapshotId(self._snapshots)
        members = {process.instance: process for process in sides}
        pending = PendingSnapshot(snapshot=snapshot, members=members, begun=self.orders.now, begun_by="the test")
        for side in sides.values():
            report = side.live.marked(snapshot)
            assert report is not None
            assert pending.offer(report) is None
        assembled = pending.assembled(self.orders.now)
        verifier = Verifier(again_seconds_min=0.0)
        effects = verifier.suspected(assembled, suspicion_of(assembled.snapshot, with_idle=False), self.orders.now)
        for effect in effects:
            if isinstance(effect, AskLook):
                effects += verifier.looked(
                    effect.process, sides[effect.process].program.look(effect.request, ""), self.orders.now
                )
        found = next(effect.assembled for effect in effects if isinstance(effect, Verified))
        return Deadlock().evaluate(found.snapshot)


def _stamp(text: str) -> Stamp:
    stamp = decode(text)
    assert stamp is not None
    return stamp


def _deadlock(pair: Pair, *, forwarded: bool = True) -> None:
    """Each has its one worker at a call of the other, and the call that this makes is queued there."""
    pair.orders.comes("t1")
    pair.stock.comes("t2")
    pair.calls(pair.orders, pair.stock, "t1", forwarded=forwarded)
    pair.calls(pair.stock, pair.orders, "t2", forwarded=forwarded)


def test_forwarded_traces_prove_the_deadlock_of_two_pools() -> None:
    pair = Pair(workers=1)
    _deadlock(pair)
    verdict = pair.ask()
    assert verdict.holds is Holds.TRUE
    assert verdict.core == (PartyName("orders/Place#1"), PartyName("stock/Place#1"))


def test_without_forwarded_traces_the_deadlock_is_not_denied() -> None:
    pair = Pair(workers=1)
    _deadlock(pair, forwarded=False)
    verdict = pair.ask()
    assert verdict.holds is Holds.UNDETERMINED
    assert "who made /s/Place is unknown" in verdict.witness.text


def test_without_the_size_of_the_pools_the_deadlock_is_not_denied() -> None:
    pair = Pair()
    _deadlock(pair)
    verdict = pair.ask()
    assert verdict.holds is Holds.UNDETERMINED
    assert "--workers" in verdict.witness.text


def test_a_deadlock_begun_by_a_job_of_the_program_itself_is_not_denied() -> None:
    """Whoever made the outermost calls is unknown and may cancel them, but may as well wait."""
    pair = Pair(workers=1)
    pair.calls(pair.stock, pair.orders, "t1", forwarded=False)
    pair.calls(pair.orders, pair.stock, "t1")
    pair.calls(pair.stock, pair.orders, "t1")
    verdict = pair.ask()
    assert verdict.holds is Holds.UNDETERMINED
    assert "who made /s/Place is unknown" in verdict.witness.text


def test_a_deadlock_of_handlers_whose_callers_gave_up_is_not_denied() -> None:
    pair = Pair(workers=1)
    _deadlock(pair)
    for side in (pair.orders, pair.stock):
        side.program.leaves(side.program.pool.served[0])
        side.comes("t3")
    assert pair.ask().holds is Holds.UNDETERMINED


def test_unattributed_calls_of_a_program_that_nobody_calls_back_raise_no_doubt() -> None:
    pair = Pair(workers=1)
    pair.orders.comes("t1")
    pair.calls(pair.orders, pair.stock, "t1", forwarded=False)
    assert pair.ask().holds is Holds.FALSE


def test_calls_back_into_a_pool_with_room_raise_no_doubt() -> None:
    pair = Pair(workers=3)
    _deadlock(pair, forwarded=False)
    assert pair.ask().holds is Holds.FALSE


def test_the_sidecars_process_is_named_in_each_party() -> None:
    beside = Beside("stock", workers=1)
    beside.calls()
    assert {party.split("/")[0] for party in beside.possible} == {ProcessName("stock")}
