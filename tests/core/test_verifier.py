"""The verification round, rule by rule: the effect of second looks on suspicions, and when they are requested."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import pytest

from detector.core.protocol.assembler import Assembled, PendingSnapshot
from detector.core.registry import ask
from detector.core.verification.amendment import amend
from detector.core.verification.round import INTERIM_SECONDS
from detector.core.verification.suspicion import suspicion_of
from detector.core.verification.verifier import UNRESPONSIVE_SECONDS, AskLook, Interim, RoundEffect, Verified, Verifier
from detector.predicates.deadlock import Deadlock
from detector.predicates.gridlock import Gridlock
from detector.predicates.termination import Termination
from stilltrue.model import Holds, PartyName, ProcessId, ProcessName, SnapshotId, Verdict, WaitNumber
from stilltrue.protocol.books.ledger import ChannelRecord
from stilltrue.protocol.recorder import Recorder
from stilltrue.protocol.report import CallTarget, PartyTarget, Report, ResourceTarget
from stilltrue.protocol.requests.look import Look, LookRequest, PartyLook, WayOut

P, Q, R, S = (PartyName(f"{name}/task") for name in "pqrs")
See = Callable[[Look], Look | None]


def as_it_is(look: Look) -> Look | None:
    return look


class Fleet:
    """Recorders, a verifier, and successive snapshots of them, one second apart."""

    def __init__(self, *names: str) -> None:
        self.recorders = {name: self.starts(name, 1) for name in names}
        self.verifier = Verifier(give_up_seconds=0.5, again_seconds_min=3.0)
        self.now = 0.0
        self.asked: list[LookRequest] = []
        """What was asked in the newest round."""

    def starts(self, name: str, incarnation: int) -> Recorder:
        return Recorder(process=ProcessId(service=name, instance=ProcessName(name), incarnation=incarnation), reactive=True)

    def taken(self, between: Callable[[str], None] = lambda _: None) -> Assembled:
        """Take a snapshot without its round; ``between`` runs after each cut."""
        self.now += 1.0
        members = {recorder.process.instance: recorder.process for recorder in self.recorders.values()}
        pending = PendingSnapshot(snapshot=SnapshotId(int(self.now)), members=members, begun=self.now, begun_by="test")
        for name, recorder in self.recorders.items():
            report = recorder.marked(SnapshotId(int(self.now)), self.now)
            assert report is not None
            assert pending.offer(report) is None
            between(name)
        return pending.assembled(self.now + 0.1)

    def verified(self, assembled: Assembled, see: See = as_it_is, *, with_idle: bool = False) -> Assembled:
        """The snapshot after its round; ``see`` changes a process's answer (None: it does not answer)."""
        now = self.now + 0.2
        effects = self.verifier.suspected(assembled, suspicion_of(assembled.snapshot, with_idle=with_idle), now)
        self.asked = [effect.request for effect in effects if isinstance(effect, AskLook)]
        found: list[RoundEffect] = list(effects)
        for effect in effects:
            if isinstance(effect, AskLook):
                look = see(self.recorders[effect.process.instance].look(effect.request, now))
                found += [] if look is None else self.verifier.looked(effect.process, look, now)
        found += self.verifier.ticked(now + 0.5)
        return next(effect.assembled for effect in found if isinstance(effect, Verified))

    def begin(self, assembled: Assembled, *, with_idle: bool = False) -> list[AskLook]:
        """Begin a snapshot's round; returns the requested looks."""
        effects = self.verifier.suspected(assembled, suspicion_of(assembled.snapshot, with_idle=with_idle), self.now + 0.2)
        found = [effect for effect in effects if isinstance(effect, AskLook)]
        self.asked = [effect.request for effect in found]
        return found

    def answer(self, asked: list[AskLook], see: See = as_it_is) -> list[Assembled]:
        """The processes look now and answer; returns the rounds that this ends."""
        found: list[RoundEffect] = []
        for effect in asked:
            look = see(self.recorders[effect.process.instance].look(effect.request, self.now))
            assert look is not None
            found += self.verifier.looked(effect.process, look, self.now + 0.2)
        return [effect.assembled for effect in found if isinstance(effect, Verified)]

    def deadlock(self, see: See = as_it_is) -> Verdict:
        return ask(Deadlock(), self.verified(self.taken(), see).snapshot)

    def looked_at(self) -> list[PartyName]:
        return sorted(suspect.party for request in self.asked for suspect in request.suspects)


def ring() -> Fleet:
    """Two tasks, each waiting for the other."""
    fleet = Fleet("p", "q")
    fleet.recorders["p"].waits(P, [PartyTarget(party=Q)], 0.0)
    fleet.recorders["q"].waits(Q, [PartyTarget(party=P)], 0.0)
    return fleet


def seeing(party: PartyName, **changes: object) -> See:
    """Change the look at ``party``."""

    def see(look: Look) -> Look:
        parties = tuple(replace(one, **changes) if one.party == party else one for one in look.parties)  # type: ignore[arg-type]
        return replace(look, parties=parties)

    return see


def called_and_stuck() -> tuple[Fleet, PartyName]:
    """P waits for a handler that waits for its own lock, and that P could cancel if it moved."""
    fleet = Fleet("p", "q")
    p, q = fleet.recorders["p"], fleet.recorders["q"]
    made, stamp = p.sent(method="/s/Do", channel=ChannelRecord("q:1"), now=0.0, party=P)
    served, _ = q.arrived(stamp, method="/s/Do", now=0.0, interruptible=True)
    q.started(served)
    q.holds(served.party, "q/lock")
    q.waits(served.party, [ResourceTarget(resource="q/lock")], 0.0)
    p.awaits(made, 0.0)
    return fleet, served.party


class Phantom:
    """p holds x and waits for y; q holds y and waits for x; each at its own cut, but never both at one instant."""

    def __init__(self) -> None:
        self.fleet = Fleet("p", "q")
        self.waits: dict[PartyName, WaitNumber] = {}

    def blocks(self, party: PartyName, holding: str, missing: str) -> None:
        recorder = self.fleet.recorders[party.split("/")[0]]
        recorder.holds(party, f"store/{holding}")
        among = [ResourceTarget(resource=f"store/{missing}")]
        self.waits[party] = recorder.waits(party, among, 0.0, uncoloured=True)

    def goes_on(self, party: PartyName, holding: str) -> None:
        recorder = self.fleet.recorders[party.split("/")[0]]
        recorder.resumes(self.waits.pop(party))
        recorder.releases(party, f"store/{holding}")

    def verdict(self) -> Verdict:
        self.blocks(P, "x", "y")
        return ask(Deadlock(), self.fleet.verified(self.fleet.taken(self.after)).snapshot)

    def after(self, name: str) -> None:
        if name == "p":
            self.goes_on(P, "x")
            self.blocks(Q, "y", "x")
        else:
            self.goes_on(Q, "y")


def test_rule_1_unchanged_waits_were_in_force_at_one_instant_stamped_or_not() -> None:
    lasting = Phantom()
    lasting.blocks(P, "x", "y")
    lasting.blocks(Q, "y", "x")
    assert ask(Deadlock(), lasting.fleet.taken().snapshot).holds is Holds.UNDETERMINED
    assert lasting.fleet.deadlock().holds is Holds.TRUE


def test_rule_2_a_phantom_is_gone_at_the_second_look_however_often_it_is_seen() -> None:
    phantom = Phantom()
    for _ in range(3):
        verdict = phantom.verdict()
        assert verdict.holds is Holds.FALSE
        assert verdict.explanation == ("p/task, q/task seemed stuck, but had moved on by the second look",)


def test_rule_2_a_way_out_frees_and_its_holder_is_named() -> None:
    fleet = ring()
    verdict = fleet.deadlock(seeing(P, ways_out=(WayOut(text="call_later(6, call.cancel) at shop.py:41"),)))
    assert verdict.holds is Holds.FALSE
    assert verdict.explanation == ("p/task seemed stuck, but has a way out: call_later(6, call.cancel) at shop.py:41",)


def test_each_reason_is_given_once_with_its_parties() -> None:
    doubted = seeing(P, doubt="its stack cannot be read")
    beside = seeing(Q, ways_out=(WayOut(text="call.cancel at shop.py:41"),))
    verdict = ring().deadlock(doubted)
    assert verdict.holds is Holds.UNDETERMINED
    assert "p/task could not be looked at again (its stack cannot be read)" in verdict.witness.text
    assert verdict.explanation == ()
    free = ring().deadlock(lambda look: beside(doubted(look) or look))
    assert free.holds is Holds.FALSE
    assert free.explanation == (
        "p/task seemed stuck, but this could not be verified: its stack cannot be read",
        "q/task seemed stuck, but has a way out: call.cancel at shop.py:41",
    )
    free = ring().deadlock(lambda look: beside(seeing(P, ways_out=(WayOut(text="call.cancel at shop.py:41"),))(look) or look))
    assert free.explanation == ("p/task, q/task seemed stuck, but each has a way out: call.cancel at shop.py:41",)


def test_rule_2_a_way_out_that_another_party_holds_frees_when_that_party_can_move() -> None:
    way = WayOut(text="cancels it", party=PartyName("p/watchdog"))
    assert ring().deadlock(seeing(P, ways_out=(way,))).holds is Holds.FALSE
    fleet = ring()
    fleet.recorders["p"].waits(PartyName("p/watchdog"), [PartyTarget(party=P)], 0.0)
    verdict = fleet.deadlock(seeing(P, ways_out=(way,)))
    assert verdict.remainder == ("p/task", "p/watchdog", "q/task")


def test_a_way_out_that_only_a_deadlocked_party_could_take_is_no_reason_against_another_predicate() -> None:
    fleet = ring()
    fleet.recorders["p"].waits(PartyName("p/watchdog"), [PartyTarget(party=P)], 0.0)
    way = WayOut(text="cancels it", party=PartyName("p/watchdog"))
    snapshot = fleet.verified(fleet.taken(), seeing(P, ways_out=(way,))).snapshot
    verdict = ask(Gridlock(), snapshot)
    assert verdict.holds is Holds.FALSE
    assert "3 parties are deadlocked: see deadlock" in verdict.witness.text
    assert verdict.explanation == ()


def test_rule_2_the_earliest_deadline_counts() -> None:
    fleet = ring()
    verified = fleet.verified(fleet.taken(), seeing(P, deadline=9.0))
    assert ask(Deadlock(), verified.snapshot).holds is Holds.FALSE
    assert ask(Gridlock(), verified.snapshot).until == 9.0


@pytest.mark.parametrize(("deadline", "held_up"), [(1.15, Holds.UNDETERMINED), (9.0, Holds.FALSE)])
def test_rule_2_a_party_that_moved_after_a_deadline_may_have_been_held_up_until_then(deadline: float, held_up: Holds) -> None:
    fleet = Fleet("p", "q")
    waits = {
        P: fleet.recorders["p"].waits(P, [PartyTarget(party=Q)], 0.0, deadline=deadline),
        Q: fleet.recorders["q"].waits(Q, [PartyTarget(party=P)], 0.0),
    }
    taken = fleet.taken()
    for party, wait in waits.items():
        fleet.recorders[party.split("/")[0]].resumes(wait)
    snapshot = fleet.verified(taken).snapshot
    assert ask(Deadlock(), snapshot).holds is Holds.FALSE
    gridlock = ask(Gridlock(), snapshot)
    assert gridlock.holds is held_up
    assert ("a deadline had passed by then" in gridlock.witness.text) is (held_up is Holds.UNDETERMINED)


def test_rule_2_one_ended_wait_of_several_is_doubt() -> None:
    fleet = ring()
    number = fleet.recorders["p"].waits(P, [PartyTarget(party=Q)], 0.0)
    assembled = fleet.taken()
    fleet.recorders["p"].resumes(number)
    assert ask(Deadlock(), fleet.verified(assembled).snapshot).holds is Holds.UNDETERMINED


@pytest.mark.parametrize(
    ("see", "reason"),
    [
        (lambda look: None if look.parties[0].party == P else look, "p did not answer within 0.5 s"),
        (lambda look: replace(look, parties=()), "p did not report on it"),
        (seeing(P, doubt="the task is of another event loop"), "the task is of another event loop"),
    ],
)
def test_rule_3_a_suspect_that_was_not_looked_at_is_doubt_with_a_reason(see: See, reason: str) -> None:
    verdict = ring().deadlock(see)
    assert verdict.holds is Holds.UNDETERMINED
    assert reason in verdict.witness.text


def test_rule_3_a_process_that_left_restarted_or_cannot_look_is_doubt_at_once() -> None:
    fleet = ring()
    assembled = fleet.taken()
    effects = fleet.verifier.suspected(assembled, suspicion_of(assembled.snapshot, with_idle=False), 1.2)
    assert [type(effect) for effect in effects] == [AskLook, AskLook]
    look = fleet.recorders["p"].look(effects[0].request, 1.2)  # type: ignore[union-attr]
    assert fleet.verifier.looked(fleet.starts("p", 2).process, look, 1.2) == [], "another incarnation's word is not p's"
    assert fleet.verifier.unable(ProcessName("q"), "q has left", 1.2) == []
    (done,) = fleet.verifier.looked(fleet.recorders["p"].process, look, 1.2)
    assert isinstance(done, Verified)
    verdict = ask(Deadlock(), done.assembled.snapshot)
    assert (verdict.holds, "q has left" in verdict.witness.text) == (Holds.UNDETERMINED, True)
    assert fleet.verifier.due() == float("inf")


def test_rule_4_a_verified_set_is_looked_at_again_after_twice_the_time() -> None:
    fleet = ring()
    looked = []
    for _ in range(25):
        assert fleet.deadlock().holds is Holds.TRUE
        looked.append(bool(fleet.asked))
    assert [second for second, asked in enumerate(looked, start=1) if asked] == [1, 4, 10, 22]


def test_rule_4_a_way_out_that_was_found_stays_found_until_it_is_looked_for_again() -> None:
    fleet = ring()
    assert fleet.deadlock(seeing(P, ways_out=(WayOut(text="a timer"),))).holds is Holds.FALSE
    assert fleet.deadlock().holds is Holds.FALSE
    assert fleet.asked == []
    fleet.now += 3.0
    assert fleet.deadlock().holds is Holds.TRUE, "the timer is gone"


def test_rule_4_a_deadline_that_passed_without_effect_is_looked_at_at_once() -> None:
    fleet = ring()
    assert fleet.deadlock(seeing(P, deadline=1.5)).holds is Holds.FALSE
    assert fleet.deadlock().holds is Holds.TRUE


def test_rule_4_a_party_that_joins_a_verified_set_is_looked_at_alone() -> None:
    fleet = ring()
    fleet.deadlock()
    fleet.recorders["q"].waits(PartyName("q/client"), [PartyTarget(party=P)], 1.5)
    assert fleet.deadlock().behind == ("q/client",)
    assert fleet.looked_at() == ["q/client"]


def test_rule_4_the_look_of_a_concurrent_round_may_be_older_than_the_snapshot() -> None:
    fleet = ring()
    fleet.verifier = Verifier(give_up_seconds=10.0, again_seconds_min=30.0)  # so that the rounds overlap
    first, second = fleet.taken(), fleet.taken()
    one, two = (fleet.begin(assembled) for assembled in (first, second))
    fleet.answer(one, seeing(P, ways_out=(WayOut(text="a watchdog"),)))  # so p's task is not looked at again for a while
    fleet.answer(two[:1])  # p, whose watchdog has dropped its reference
    for waiter, target in ((R, S), (S, R)):
        name = waiter.split("/")[0]
        fleet.recorders[name] = fleet.starts(name, 1)
        fleet.recorders[name].waits(waiter, [PartyTarget(party=target)], 0.0)
    third = fleet.taken(lambda name: fleet.recorders[name].resumes(WaitNumber(1)) if name == "p" else None)
    three = fleet.begin(third)
    assert fleet.looked_at() == [R, S]
    fleet.answer(two[1:])  # the second round is over
    verdict = ask(Deadlock(), fleet.answer(three)[-1].snapshot)
    assert verdict.remainder == (R, S)


def test_rule_4_a_wait_of_a_former_incarnation_was_never_looked_at() -> None:
    fleet = ring()
    fleet.deadlock()
    fleet.recorders["p"] = fleet.starts("p", 2)
    fleet.recorders["p"].waits(P, [PartyTarget(party=Q)], 1.5)
    fleet.recorders["p"].marked(SnapshotId(1), 1.5)
    assert fleet.deadlock().holds is Holds.TRUE
    assert fleet.looked_at() == ["p/task", "q/task"], "what q was verified with is gone"


def test_rule_4_a_verified_set_stays_verified_without_an_answer_to_a_later_look() -> None:
    fleet = ring()
    fleet.deadlock()
    fleet.now += 5.0
    assert fleet.deadlock(lambda _: None).holds is Holds.TRUE
    assert fleet.asked


def repeated() -> Fleet:
    """Like :func:`ring`, with a call that may be sent twice."""
    fleet = Fleet("p", "q")
    made, stamp = fleet.recorders["p"].sent(
        method="/s/Do", channel=ChannelRecord("q:1", copies_max=2), now=0.0, party=P, waiting=True
    )
    served, _ = fleet.recorders["q"].arrived(stamp, method="/s/Do", now=0.0)
    fleet.recorders["q"].started(served)
    fleet.recorders["q"].waits(served.party, [PartyTarget(party=P)], 0.0)
    assert made.wait
    return fleet


def test_rule_5_a_round_in_progress_when_the_snapshot_began_confirms_nothing() -> None:
    fleet = repeated()
    first, second = fleet.taken(), fleet.taken()
    assert ask(Deadlock(), fleet.verified(first).snapshot).holds is Holds.UNDETERMINED
    assert ask(Deadlock(), fleet.verified(second).snapshot).holds is Holds.UNDETERMINED
    assert fleet.deadlock().holds is Holds.TRUE


def test_rule_5_a_call_that_may_be_retried_takes_a_second_round() -> None:
    fleet = repeated()
    assert fleet.deadlock().holds is Holds.UNDETERMINED
    fleet.now += 5.0
    assert fleet.deadlock().core == ("p/task", "q/Do#1")


def test_rule_6_a_process_is_idle_when_nothing_has_happened_since_its_cut() -> None:
    fleet = Fleet("p", "q")
    verified = fleet.verified(fleet.taken(), with_idle=True)
    assert ask(Termination(), verified.snapshot).holds is Holds.TRUE
    assembled = fleet.taken()
    fleet.recorders["q"].fact({"x": 1})
    verdict = ask(Termination(), fleet.verified(assembled, with_idle=True).snapshot)
    assert (verdict.holds, "q: it has recorded events" in verdict.witness.text) == (Holds.TRUE, False), "it was verified"
    verdict = ask(Termination(), fleet.verified(fleet.taken(), with_idle=True).snapshot)
    assert verdict.holds is Holds.TRUE


def test_rule_6_an_event_between_cut_and_look_is_doubt() -> None:
    fleet = Fleet("p", "q")
    assembled = fleet.taken()
    fleet.recorders["q"].fact({"x": 1})
    verdict = ask(Termination(), fleet.verified(assembled, with_idle=True).snapshot)
    assert verdict.holds is Holds.UNDETERMINED
    assert "q: it has recorded events since its cut (1 steps)" in verdict.witness.text


def test_rule_6_the_look_of_another_round_does_not_clear_a_process_that_moved_on() -> None:
    fleet = Fleet("p", "q")
    fleet.verifier = Verifier(give_up_seconds=10.0, again_seconds_min=30.0)  # so that the rounds overlap

    def timer(look: Look) -> Look:
        return replace(look, unaccounted=("a timer",) if fleet.recorders["p"].happenings == look.happenings == 1 else ())

    fleet.recorders["p"].fact({"jobs": 1})
    assert ask(Termination(), fleet.verified(fleet.taken(), timer, with_idle=True).snapshot).holds is Holds.UNDETERMINED
    fleet.recorders["q"].fact({"jobs": 1})
    waiting = fleet.begin(fleet.taken(), with_idle=True)
    assert [effect.process.instance for effect in waiting] == ["q"]
    fleet.recorders["p"].fact({"jobs": 2})  # the timer has gone off
    fleet.answer(fleet.begin(fleet.taken(), with_idle=True))
    (late,) = fleet.answer(waiting)
    assert ask(Termination(), late.snapshot).holds is Holds.UNDETERMINED


def test_rule_6_work_that_no_party_accounts_for_is_doubt() -> None:
    fleet = Fleet("p", "q")
    see: See = lambda look: replace(look, unaccounted=("thread poller",))  # noqa: E731
    verdict = ask(Termination(), fleet.verified(fleet.taken(), see, with_idle=True).snapshot)
    assert (verdict.holds, "thread poller" in verdict.witness.text) == (Holds.UNDETERMINED, True)


def test_rule_7_a_silent_process_is_waited_for_briefly_until_it_answers() -> None:
    fleet = ring()
    fleet.verifier = Verifier(give_up_seconds=3.0, again_seconds_min=0.0)

    def round_without_p() -> tuple[AskLook, float]:
        """q answers at once; returns p's request and how long the round then waits for it."""
        fleet.now += 5.0
        ask_p, ask_q = fleet.begin(fleet.taken())
        assert fleet.verifier.due() == pytest.approx(fleet.now + 0.2 + 3.0), "q may take its time"
        assert fleet.answer([ask_q]) == []
        return ask_p, fleet.verifier.due() - fleet.now - 0.2

    for seconds in (3.0, UNRESPONSIVE_SECONDS, UNRESPONSIVE_SECONDS):
        ask_p, patience = round_without_p()
        assert patience == pytest.approx(seconds)
        assert fleet.verifier.ticked(fleet.now + 0.2 + seconds - 0.01) == []
        (done,) = fleet.verifier.ticked(fleet.now + 0.2 + seconds)
        assert isinstance(done, Verified)
        assert done.given_up
        assert f"p did not answer within {seconds:g} s" in str(ask(Deadlock(), done.assembled.snapshot))
    assert fleet.answer([ask_p], seeing(P, doubt="it was busy")) == []  # too late for its round, but it is alive
    assert fleet.verifier.ticked(fleet.now + 0.2) == []
    ask_p, patience = round_without_p()
    assert patience == pytest.approx(3.0)
    (assembled,) = fleet.answer([ask_p])
    assert ask(Deadlock(), assembled.snapshot).holds is Holds.TRUE


@pytest.mark.parametrize("late", ["p", "pq"])
def test_rule_9_looks_that_are_always_late_verify_a_deadlock_in_the_end(late: str) -> None:
    fleet = ring()
    asked = fleet.begin(fleet.taken())
    in_time, slow = ([one for one in asked if (one.process.instance in late) is is_late] for is_late in (False, True))
    assert fleet.answer(in_time) == []
    (done,) = fleet.verifier.ticked(fleet.now + 1.0)
    assert isinstance(done, Verified)
    verdict = ask(Deadlock(), done.assembled.snapshot)
    assert (verdict.holds, "--look-give-up-seconds" in verdict.witness.text) == (Holds.UNDETERMINED, True)
    fleet.now += 8.0
    fleet.answer(slow)
    assert fleet.verifier.due() <= fleet.now + 0.2
    assert fleet.verifier.ticked(fleet.now + 0.2) == [], "its round is over"
    assert fleet.verifier.due() == float("inf")
    fleet.now += 1.0
    assert fleet.deadlock(lambda _: None).remainder == (P, Q)


def test_rule_9_a_late_look_counts_though_its_process_missed_snapshots_meanwhile() -> None:
    fleet = ring()
    asked = fleet.begin(fleet.taken())
    fleet.answer(asked[1:])
    fleet.verifier.ticked(fleet.now + 1.0)
    busy = fleet.recorders.pop("p")
    for late in (False, True):
        members = {ProcessName(name): one.process for name, one in (fleet.recorders | {"p": busy}).items()}
        fleet.now += 1.0
        pending = PendingSnapshot(snapshot=SnapshotId(int(fleet.now)), members=members, begun=fleet.now, begun_by="test")
        report = fleet.recorders["q"].marked(SnapshotId(int(fleet.now)), fleet.now)
        assert report is not None
        assert pending.offer(report) is None
        verdict = ask(Deadlock(), fleet.verified(pending.assembled(fleet.now + 0.1)).snapshot)
        assert verdict.holds is Holds.UNDETERMINED
        if not late:
            fleet.verifier.looked(busy.process, busy.look(asked[0].request, fleet.now), fleet.now + 0.6)
            fleet.verifier.ticked(fleet.now + 0.7)
    fleet.recorders = {"p": busy, **fleet.recorders}
    assert fleet.deadlock(lambda _: None).remainder == (P, Q)


@pytest.mark.parametrize(("ways_out", "core"), [((), (P, Q)), ((WayOut(text="a timer"),), ())], ids=["none", "a way out"])
def test_rule_9_late_looks_of_a_further_round_count_as_well(ways_out: tuple[WayOut, ...], core: tuple[str, ...]) -> None:
    """A slow process answers one request after the other; its first look has run out of time, and none is in time."""
    fleet = ring()
    fleet.verifier = Verifier(give_up_seconds=0.5, again_seconds_min=0.0)
    requests = []
    for _ in range(2):
        requests.append(fleet.begin(fleet.taken()))
        fleet.verifier.ticked(fleet.now + 1.0)
        fleet.now += 1.0
    for asked, see in zip(requests, (seeing(P, doubt="the look ran out of time"), seeing(P, ways_out=ways_out)), strict=True):
        fleet.now += 15.0
        fleet.answer(asked, see)
        fleet.verifier.ticked(fleet.now + 0.2)
    assert fleet.deadlock(lambda _: None).remainder == core


def test_rule_9_a_call_that_may_be_retried_takes_a_second_round_of_late_looks_too() -> None:
    fleet = repeated()
    for _ in range(2):
        asked = fleet.begin(fleet.taken())
        assert [one.process.instance for one in asked] == ["p", "q"]
        fleet.verifier.ticked(fleet.now + 1.0)
        fleet.now += 10.0
        fleet.answer(asked)
        fleet.verifier.ticked(fleet.now + 0.2)
    assert fleet.deadlock(lambda _: None).core == ("p/task", "q/Do#1")


def test_rule_9_a_late_way_out_is_no_deadlock() -> None:
    fleet = ring()
    asked = fleet.begin(fleet.taken())
    fleet.answer(asked[1:])
    fleet.verifier.ticked(fleet.now + 1.0)
    fleet.answer(asked[:1], seeing(P, ways_out=(WayOut(text="a timer"),)))
    fleet.verifier.ticked(fleet.now + 1.0)
    assert fleet.deadlock(lambda _: None).holds is Holds.FALSE


def test_rule_9_a_late_look_of_a_party_that_has_moved_on_accuses_nobody() -> None:
    fleet = ring()
    asked = fleet.begin(fleet.taken())
    fleet.answer(asked[1:])
    fleet.verifier.ticked(fleet.now + 1.0)
    fleet.recorders["p"].resumes(WaitNumber(1))
    fleet.recorders["p"].waits(P, [PartyTarget(party=Q)], fleet.now)
    fleet.answer(asked[:1])
    fleet.verifier.ticked(fleet.now + 1.0)
    assert fleet.deadlock(lambda _: None).holds is not Holds.TRUE


def test_rule_9_a_newer_look_stands() -> None:
    """The earlier request is answered last."""
    fleet = ring()
    fleet.verifier = Verifier(give_up_seconds=0.5, again_seconds_min=0.0)
    first = fleet.begin(fleet.taken())
    fleet.answer(first[1:])
    fleet.verifier.ticked(fleet.now + 1.0)
    assert fleet.deadlock(seeing(P, ways_out=(WayOut(text="a timer"),))).holds is Holds.FALSE
    fleet.answer(first[:1])
    fleet.verifier.ticked(fleet.now + 1.0)
    assert fleet.deadlock(lambda _: None).holds is not Holds.TRUE


def test_rule_9_looks_of_many_late_processes_are_taken_together() -> None:
    fleet = two_rings()
    fleet.verifier = Verifier(give_up_seconds=0.5)
    asked = fleet.begin(fleet.taken())
    fleet.verifier.ticked(fleet.now + 1.0)
    fleet.answer(asked[:2])
    assert fleet.verifier.due() == pytest.approx(fleet.now + 0.2 + INTERIM_SECONDS)
    fleet.verifier.ticked(fleet.verifier.due())
    fleet.now += 5.0
    assert fleet.deadlock(lambda _: None).remainder == (P, Q), "others need not answer for it"


def test_rule_9_a_process_that_never_answers_keeps_no_further_round() -> None:
    fleet = ring()
    fleet.verifier = Verifier(give_up_seconds=0.5, again_seconds_min=0.0)
    kept = []
    for _ in range(3):
        asked = fleet.begin(fleet.taken())
        fleet.answer(asked[1:])
        fleet.verifier.ticked(fleet.now + 0.9)
        kept.append(asked[0])
    fleet.verifier.unable(ProcessName("p"), "p has left", fleet.now)
    fleet.answer(kept)
    assert fleet.verifier.due() == float("inf")


def two_rings() -> Fleet:
    """The tasks of p and q wait for each other, and those of r and s."""
    fleet = Fleet("p", "q", "r", "s")
    for one, other in ((P, Q), (Q, P), (R, S), (S, R)):
        fleet.recorders[one.split("/")[0]].waits(one, [PartyTarget(party=other)], 0.0)
    fleet.verifier = Verifier(give_up_seconds=3.0, again_seconds_min=0.0)
    return fleet


def answered_but(silent: str, fleet: Fleet, see: See = as_it_is) -> tuple[list[RoundEffect], AskLook]:
    """The interim result of a round in which all but one have answered, and the outstanding request."""
    asked = fleet.begin(fleet.taken())
    assert fleet.answer([one for one in asked if one.process.instance != silent], see) == []
    assert fleet.verifier.interim_due() == pytest.approx(fleet.now + 0.2 + INTERIM_SECONDS)
    (last,) = (one for one in asked if one.process.instance == silent)
    return fleet.verifier.interim(fleet.now + 0.2 + INTERIM_SECONDS), last


def test_rule_8_a_set_stuck_whatever_silent_processes_answer_is_reported_at_once() -> None:
    fleet = two_rings()
    (early,), last = answered_but("s", fleet)
    assert isinstance(early, Interim)
    verdict = ask(Deadlock(), early.assembled.snapshot)
    assert (verdict.holds, verdict.remainder) == (Holds.TRUE, (P, Q))
    assert fleet.verifier.interim(fleet.now + 1.0) == [], "once a round"
    (assembled,) = fleet.answer([last])
    assert ask(Deadlock(), assembled.snapshot).remainder == (P, Q, R, S)


def test_rule_8_a_set_that_depends_on_silent_processes_is_not_reported_yet() -> None:
    fleet = Fleet("p", "q", "s")
    fleet.verifier = Verifier(give_up_seconds=3.0, again_seconds_min=0.0)
    fleet.recorders["p"].waits(P, [PartyTarget(party=Q), PartyTarget(party=S)], 0.0, needs=1)
    fleet.recorders["q"].waits(Q, [PartyTarget(party=P)], 0.0)
    fleet.recorders["s"].waits(S, [PartyTarget(party=P)], 0.0)
    found, last = answered_but("s", fleet)
    assert found == []
    (assembled,) = fleet.answer([last])
    assert ask(Deadlock(), assembled.snapshot).remainder == (P, Q, S)


def test_rule_8_a_way_out_in_an_answer_counts_at_once() -> None:
    fleet = two_rings()
    found, last = answered_but("s", fleet, seeing(P, ways_out=(WayOut(text="a timer"),)))
    assert found == []
    (assembled,) = fleet.answer([last])
    assert ask(Deadlock(), assembled.snapshot).remainder == (R, S)


def test_a_late_answer_does_not_answer_the_next_request() -> None:
    fleet = ring()
    found = fleet.verified(fleet.taken(), lambda _: None)
    suspicion = replace(suspicion_of(found.snapshot, with_idle=False), parties={}, processes=(ProcessName("p"),))
    (done,) = fleet.verifier.suspected(found, suspicion, 1.8)
    assert isinstance(done, Verified)
    assert "did not answer" in done.assembled.reports[ProcessName("p")].doubt


def test_without_amendments_the_snapshot_is_the_same_object() -> None:
    fleet = ring()
    assembled = fleet.taken()
    found = fleet.verified(assembled)
    assert found.snapshot.waits is not assembled.snapshot.waits, "certain now"
    again = fleet.verified(fleet.taken())
    assert set(again.snapshot.looks) == {P, Q}


def test_a_true_names_each_partys_place_in_the_code() -> None:
    verdict = ring().deadlock(lambda look: replace(look, parties=tuple(map(standing, look.parties))))
    assert verdict.holds is Holds.TRUE
    assert [(seen.party, seen.stack, seen.trace) for seen in verdict.evidence] == [
        ("p/task", ("p.py:7 in wait",), "4bf9"),
        ("q/task", ("q.py:7 in wait",), "4bf9"),
    ]
    assert "p/task is at p.py:7 in wait, in trace 4bf9" in verdict.explanation


DRIVER = "/venv/lib/python3.11/site-packages/psycopg/connection.py:495 in Connection.wait"


@pytest.mark.parametrize(
    ("stack", "place"),
    [
        ((DRIVER, "/app/shop.py:16 in charge", "/app/shop.py:3 in main"), f"{DRIVER}, called from /app/shop.py:16 in charge"),
        ((DRIVER, "/venv/lib/python3.11/site-packages/shop/main.py:7 in serve"), DRIVER),
        (("/app/shop.py:16 in charge", DRIVER), "/app/shop.py:16 in charge"),
    ],
)
def test_a_place_in_an_installed_package_is_followed_by_the_applications_own_line(stack: tuple[str, ...], place: str) -> None:
    verdict = ring().deadlock(lambda look: replace(look, parties=tuple(replace(one, stack=stack) for one in look.parties)))
    assert f"p/task is at {place}" in verdict.explanation


def test_parties_in_a_common_helper_are_told_apart_by_their_callers() -> None:
    def at(look: PartyLook) -> PartyLook:
        return replace(
            look, stack=("shop.py:35 in call", f"shop.py:{4 if look.party == P else 5}4 in serve", "shop.py:9 in main")
        )

    told = ring().deadlock(lambda look: replace(look, parties=tuple(map(at, look.parties)))).explanation
    assert "p/task is at shop.py:35 in call, called from shop.py:44 in serve" in told
    assert "q/task is at shop.py:35 in call, called from shop.py:54 in serve" in told


def standing(look: PartyLook) -> PartyLook:
    return replace(look, stack=(f"{look.party[0]}.py:7 in wait",), trace="4bf9")


def amended(look: PartyLook, names: Iterable[str] = "abc", **wait: object) -> list[tuple[int, list[str], bool | None]]:
    recorder = Fleet("p").recorders["p"]
    among = [PartyTarget(party=PartyName(name)) for name in names]
    recorder.waits(P, among, 0.0, **wait)  # type: ignore[arg-type]
    report: Report | None = recorder.marked(SnapshotId(1), 1.0)
    assert report is not None
    return [
        (one.needs, [target.party for target in one.among if isinstance(target, PartyTarget)], one.certain)
        for one in amend(report, {P: look}).waits
    ]


def test_a_way_out_of_a_k_of_n_wait_is_a_target_of_each_part() -> None:
    look = PartyLook(party=P, unchanged=True, ways_out=(WayOut(text="cancels it", party=PartyName("w")),))
    assert amended(look) == [(1, ["a", "b", "c", "w"], True)]
    assert amended(look, needs=3) == [(1, ["a", "w"], True), (1, ["b", "w"], True), (1, ["c", "w"], True)]
    assert amended(look, needs=2) == [(1, ["a", "b", "w"], True), (1, ["a", "c", "w"], True), (1, ["b", "c", "w"], True)]
    many = [f"n{number}" for number in range(20)]
    assert amended(look, many, needs=10) == [(10, many, False)]  # too many choices: doubt


def test_a_handler_that_passes_its_cancellation_on_ends_with_its_call() -> None:
    fleet = Fleet("p", "q")
    made, stamp = fleet.recorders["p"].sent(method="/s/Do", channel=ChannelRecord("q:1"), now=0.0, party=P)
    served, _ = fleet.recorders["q"].arrived(stamp, method="/s/Do", now=0.0, deadline=9.0)
    fleet.recorders["q"].started(served)
    fleet.recorders["q"].waits(served.party, [PartyTarget(party=served.party)], 0.0)
    assert ask(Deadlock(), fleet.taken().snapshot).holds is Holds.TRUE
    assert made.number
    verified = fleet.verified(fleet.taken(), seeing(served.party, interruptible=True))
    (report,) = (report for report in verified.reports.values() if report.waits)
    assert (report.served[0].interruptible, report.waits[0].deadline) == (True, 9.0)
    assert ask(Deadlock(), verified.snapshot).holds is Holds.FALSE


def queue_behind_its_own_caller() -> tuple[Fleet, PartyName]:
    """p's only worker waits for a call to q, whose handler calls p in turn; returns also the worker."""
    fleet = Fleet("p", "q")
    p, q = fleet.recorders["p"], fleet.recorders["q"]
    p.pool_opened("workers", 1)
    worker, _ = p.arrived(None, method="/s/Outer", now=0.0, pool="workers")
    p.started(worker)
    made, stamp = p.sent(method="/s/Go", channel=ChannelRecord("q:1"), now=0.0, party=worker.party)
    p.awaits(made, 0.0)
    going, _ = q.arrived(stamp, method="/s/Go", now=0.0)
    q.started(going)
    made, stamp = q.sent(method="/s/Inner", channel=ChannelRecord("p:1"), now=0.0, party=going.party)
    q.awaits(made, 0.0)
    p.arrived(stamp, method="/s/Inner", now=0.0, pool="workers")
    return fleet, worker.party


def test_a_pool_that_may_grow_does_not_hold_up_queued_calls() -> None:
    fleet, worker = queue_behind_its_own_caller()
    assert fleet.deadlock().holds is Holds.TRUE
    fleet, worker = queue_behind_its_own_caller()
    grown = seeing(worker, grown_by="a thread")
    for _ in range(3):  # known from the first round on
        assert fleet.deadlock(grown).holds is Holds.FALSE
    assert fleet.looked_at() == []


def test_a_pool_that_may_grow_does_not_free_a_wait_for_a_worker_itself() -> None:
    fleet, worker = queue_behind_its_own_caller()
    fleet.recorders["p"].waits(worker, [PartyTarget(party=worker)], 0.0)
    assert fleet.deadlock(seeing(worker, grown_by="a thread")).core == (worker,)


def test_a_look_at_the_reader_makes_no_wait_of_an_item_in_transit() -> None:
    fleet = Fleet("p", "q")
    made, stamp = fleet.recorders["p"].sent(method="/s/Do", channel=ChannelRecord("q:1"), now=0.0, party=P)
    served, _ = fleet.recorders["q"].arrived(stamp, method="/s/Do", now=0.0)
    fleet.recorders["q"].started(served)
    fleet.recorders["q"].waits(served.party, [PartyTarget(party=P)], 0.0)
    fleet.recorders["q"].item_sent(served)
    fleet.recorders["p"].waits(P, [CallTarget(number=made.number)], 0.0, uncoloured=True)
    assert fleet.deadlock().holds is Holds.FALSE


class Counted(tuple[object, ...]):
    """A tuple that counts its iterations."""

    passes = 0

    def __iter__(self) -> Iterator[object]:
        Counted.passes += 1
        return super().__iter__()


def test_a_round_goes_through_reports_and_looks_once_and_not_once_for_each_suspect(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet("p")
    parties = [PartyName(f"p/{number}") for number in range(200)]
    for number, party in enumerate(parties):
        fleet.recorders["p"].waits(party, [PartyTarget(party=parties[number ^ 1])], 0.0)
    taken = fleet.taken()
    counted = {name: replace(report, waits=Counted(report.waits)) for name, report in taken.reports.items()}  # type: ignore[arg-type]

    def see(look: Look) -> Look:
        return replace(look, parties=Counted(look.parties))  # type: ignore[arg-type]

    monkeypatch.setattr(Counted, "passes", 0)
    found = fleet.verified(replace(taken, reports=counted), see)
    assert (len(fleet.looked_at()), ask(Deadlock(), found.snapshot).holds) == (200, Holds.TRUE)
    assert Counted.passes < 20


def test_a_caller_that_was_not_looked_at_may_cancel_the_call() -> None:
    fleet, stuck = called_and_stuck()
    assert fleet.deadlock().core == (stuck,)
    for see in (without_answer_of("p"), seeing(P, doubt="its timers cannot be read")):
        fleet, _ = called_and_stuck()
        assert fleet.deadlock(see).holds is Holds.UNDETERMINED


def test_an_interim_result_is_empty_while_a_caller_may_cancel_the_call() -> None:
    fleet, _ = called_and_stuck()
    asked = fleet.begin(fleet.taken())
    fleet.answer([one for one in asked if one.process.instance == "q"])
    assert not [one for one in fleet.verifier.interim(fleet.now + 0.2 + INTERIM_SECONDS) if getattr(one, "certain", True)]


def without_answer_of(name: str) -> See:
    """That process does not answer."""
    return lambda look: None if any(one.party.startswith(f"{name}/") for one in look.parties) else look
