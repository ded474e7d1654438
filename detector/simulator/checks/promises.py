"""The promises (docs/design.md section 2), checked for one verdict: safe, sound, stable, and exactly the remainder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from detector.core.protocol.assembler import Assembled
from detector.simulator.checks import oracle
from detector.simulator.checks.oracle import View
from detector.simulator.world.world import World
from stilltrue.model import Holds, PartyName, ProcessName, Verdict, process_of

CORE_PARTIES_MAX = 300
"""The naive reckoning of the core takes the square of this many steps; beyond it the core is left unchecked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instant:
    """The truth at one instant, as far as promises lean on it.

    ``outside``: how many acts from outside came before; ``outside_before``: how many of them before the last snapshot ended.
    """

    members: frozenset[ProcessName]
    outside: int
    outside_before: int
    stuck: frozenset[PartyName]
    stuck_unless_stopped: frozenset[PartyName]
    knowable: frozenset[PartyName]
    core: frozenset[PartyName]
    knowable_core: frozenset[PartyName]
    held_up: frozenset[PartyName]
    knowably_held_up: frozenset[PartyName]
    terminated: bool
    knowably_terminated: bool
    quiet: bool
    knowably_quiet: bool
    tokens_gone: int
    lost_messages: int
    group: frozenset[PartyName]
    knowable_group: frozenset[PartyName]
    expired: int
    departed: frozenset[ProcessName]
    of_the_dead: bool


def instant(world: World, members: frozenset[ProcessName], *, outside_before: int = 0) -> Instant:
    """The truth now."""
    knowable = oracle.stuck(world, View(members=members, doubt=True))
    stuck = oracle.stuck(world, View(members=members))
    few = 0 < len(stuck) <= CORE_PARTIES_MAX
    inside = frozenset(name for name, process in world.processes.items() if process.id.service == world.plan.scope)
    terminated = oracle.terminated(world)
    return Instant(
        members=members,
        outside=world.outside,
        outside_before=outside_before,
        stuck=stuck,
        stuck_unless_stopped=oracle.stuck(world, View(members=members, stops=False)) if world.has_jobs else stuck,
        knowable=knowable,
        core=oracle.core(world, stuck, View(members=members)) if few else frozenset(),
        knowable_core=oracle.core(world, stuck, View(members=members, doubt=True)) if few else frozenset(),
        held_up=oracle.stuck(world, View(members=members, deadlines=False)) if _has_deadlines(world) else stuck,
        knowably_held_up=_knowably_held_up(world, members, knowable),
        terminated=terminated,
        knowably_terminated=terminated and oracle.terminated(world, knowable=True),
        quiet=oracle.quiet(world, stuck),
        knowably_quiet=oracle.knowably_quiet(world, knowable),
        tokens_gone=oracle.tokens_gone(world),
        lost_messages=oracle.lost_messages(world),
        group=oracle.stuck(world, View(members=members, inside=inside)) if inside else frozenset(),
        knowable_group=oracle.stuck(world, View(members=members, doubt=True, inside=inside)) if inside else frozenset(),
        expired=world.expired,
        departed=frozenset(world.departed & world.processes.keys()),
        of_the_dead=_of_the_dead(world),
    )


def hold(
    world: World, assembled: Assembled, verdicts: Sequence[Verdict], *, raw: Assembled, begun: Instant, ended: Instant
) -> None:
    """Check every verdict about one snapshot; what is broken goes to the world's breaches. ``raw``: before its round."""
    for verdict in verdicts:
        match verdict.predicate:
            case "deadlock":
                _deadlock(world, assembled, raw, verdict, begun, ended)
            case "gridlock":
                if _since(world, raw, verdict, begun) == ended.outside:
                    _gridlock(world, assembled, verdict, begun, ended)
            case "termination" | "phase-ended":
                _termination(world, verdict, begun, ended)
            case "quiescence":
                if _undisturbed(begun, ended) and _since(world, raw, verdict, begun) == ended.outside:
                    _quiescence(world, verdict, begun, ended)
            case "token-lost" | "token-duplicated":
                _tokens(world, verdict, begun, ended)
            case "lost-message":
                _lost_messages(world, verdict, begun, ended)


def hold_group(world: World, assembled: Assembled, verdict: Verdict, *, begun: Instant, ended: Instant) -> None:
    """Check the verdicts on a group's deadlocks: each party named is in the group, and stuck even if all others can move."""
    about = f"snapshot {verdict.snapshot.id}, deadlock {verdict.holds.value} in {world.plan.scope}"
    if begun.outside != ended.outside:
        return
    missing = frozenset(assembled.snapshot.missing)
    knowable = frozenset(name for name in begun.knowable_group & ended.knowable_group if process_of(name) not in missing)
    said = frozenset(name for name in verdict.remainder if "~" not in name)
    if verdict.holds is Holds.TRUE and not said <= ended.group:
        world.breach(f"safe: {about}: {_names(said - ended.group)} could move when it ended")
    vouched = not missing and not assembled.snapshot.waits.uncoloured.any()
    if verdict.holds is Holds.TRUE and vouched and not knowable <= said:
        world.breach(f"exact: {about}: {_names(knowable - said)} was stuck when it began and is not named")
    if verdict.holds is Holds.FALSE and knowable:
        world.breach(f"sound: {about}: {_names(knowable)} could never move when it began")


def hold_early(
    world: World, assembled: Assembled, deadlock: Verdict, gridlock: Verdict, *, raw: Assembled, begun: Instant, ended: Instant
) -> None:
    """Check what is said while a round goes on: somebody is stuck, for good or until a deadline, and those named are."""
    about = f"snapshot {deadlock.snapshot.id}, deadlock {deadlock.holds.value} before its round was over"
    if Holds.TRUE not in (deadlock.holds, gridlock.holds):
        world.breach(f"live: {about}: somebody is stuck for certain")
    if deadlock.holds is Holds.TRUE:
        _remainder(world, deadlock, about)
        if _since(world, raw, deadlock, begun) == ended.outside:
            _stuck(world, deadlock, about, begun, ended, whole=False)
    if gridlock.holds is Holds.TRUE and _since(world, raw, gridlock, begun) == ended.outside:
        _gridlock(world, assembled, gridlock, begun, ended)


def _deadlock(world: World, assembled: Assembled, raw: Assembled, verdict: Verdict, begun: Instant, ended: Instant) -> None:
    about = f"snapshot {verdict.snapshot.id}, deadlock {verdict.holds.value}"
    missing = frozenset(assembled.snapshot.missing)
    knowable = frozenset(name for name in begun.knowable & ended.knowable if process_of(name) not in missing)
    undisturbed = _since(world, raw, verdict, begun) == ended.outside
    vouched = not missing and not assembled.snapshot.waits.uncoloured.any()
    if verdict.holds is Holds.TRUE:
        _remainder(world, verdict, about)
        if undisturbed:
            _stuck(world, verdict, about, begun, ended, whole=vouched and world.plan.copies_max == 1)
        if undisturbed and vouched and not knowable <= frozenset(verdict.remainder):
            world.breach(f"exact: {about}: {_names(knowable - {*verdict.remainder})} was stuck when it began and is not named")
    elif verdict.holds is Holds.FALSE and undisturbed and knowable:
        world.breach(f"sound: {about}: {_names(knowable)} could never move when it began")
    elif verdict.holds is Holds.UNDETERMINED and vouched:
        world.breach(f"live: {about}: nobody is missing and nothing is unconfirmed")


def _remainder(world: World, verdict: Verdict, about: str) -> None:
    """The remainder is somebody, and is parted into core and behind."""
    if not verdict.remainder:
        world.breach(f"exact: {about}: with nobody in the remainder")
    if {*verdict.core, *verdict.behind} != {*verdict.remainder} or {*verdict.core} & {*verdict.behind}:
        world.breach(f"exact: {about}: core and behind do not part the remainder")


def _stuck(world: World, verdict: Verdict, about: str, begun: Instant, ended: Instant, *, whole: bool) -> None:
    """No named party could move when the snapshot ended, or ever will; the core is correct.

    But who could stop one then may have let go of it before the second look, which finds nobody who can.

    ``whole``: no wait of a party is left out of the graph for want of confirmation while another of its waits is in it.
    """
    said = frozenset(name for name in verdict.remainder if "~" not in name)
    if not said <= ended.stuck:
        free = said - (ended.stuck_unless_stopped & oracle.stuck(world, View(members=ended.members)))
        if free:
            world.breach(f"safe: {about}: {_names(free)} could move when it ended")
            return
    world.frozen.update(dict.fromkeys(said, f"snapshot {verdict.snapshot.id}"))
    still = begun.knowable == ended.stuck == said and begun.knowable_core == begun.core == ended.core != frozenset()
    if whole and still and begun.core != {name for name in verdict.core if "~" not in name}:
        world.breach(f"exact: {about}: the core is {_names(begun.core)}, not {_names(verdict.core)}")


def _gridlock(world: World, assembled: Assembled, verdict: Verdict, begun: Instant, ended: Instant) -> None:
    """Until the time in the verdict, no party of the remainder may move; FALSE: no party was held up only by deadlines."""
    if verdict.holds is Holds.FALSE:
        missing = frozenset(assembled.snapshot.missing)
        both = begun.knowably_held_up & ended.knowably_held_up
        held_up = frozenset(name for name in both if process_of(name) not in missing)
        alone = not (begun.stuck or ended.stuck) and begun.expired == ended.expired  # who waits for the deadlocked is not meant
        if held_up and alone:
            world.breach(f"sound: snapshot {verdict.snapshot.id}, gridlock false: only deadlines could free {_names(held_up)}")
    if verdict.holds is not Holds.TRUE:
        return
    about = f"snapshot {verdict.snapshot.id}, gridlock until {verdict.until}"
    said = frozenset(name for name in verdict.remainder if "~" not in name)
    if verdict.until is None:
        world.breach(f"exact: {about}: nothing ends it, so it is no gridlock")
    elif world.now < verdict.until:
        if not said <= ended.held_up:
            world.breach(f"safe: {about}: {_names(said - ended.held_up)} could move when it ended")
        for name in said:
            world.frozen_until[name] = max(verdict.until, world.frozen_until.get(name, 0.0))


def _quiescence(world: World, verdict: Verdict, begun: Instant, ended: Instant) -> None:
    if verdict.holds is Holds.TRUE and not ended.quiet:
        world.breach(f"safe: snapshot {verdict.snapshot.id}, quiescence true: somebody could move when it ended")
    if verdict.holds is Holds.FALSE and begun.knowably_quiet:
        world.breach(f"sound: snapshot {verdict.snapshot.id}, quiescence false: it was so when it began")


def _tokens(world: World, verdict: Verdict, begun: Instant, ended: Instant) -> None:
    """Tokens are lost only when a reply has no receiver, and never created."""
    about = f"snapshot {verdict.snapshot.id}, {verdict.predicate} {verdict.holds.value}: {verdict.witness.text}"
    lost = verdict.predicate == "token-lost"
    if verdict.holds is Holds.TRUE and not (lost and ended.tokens_gone):
        world.breach(f"safe: {about}")
    if verdict.holds is Holds.FALSE and lost and begun.tokens_gone:
        world.breach(f"sound: {about}: {begun.tokens_gone} were gone when it began")


def _since(world: World, assembled: Assembled, verdict: Verdict, begun: Instant) -> int:
    """How many acts from outside came before what is said was so.

    Where calls may be repeated, confirmed waits were there when the snapshot before ended: a connection lost since is a decree.
    """
    if world.plan.copies_max == 1:
        return begun.outside
    waits = assembled.snapshot.waits
    leaning = set(waits.named(waits.waiter[waits.uncoloured]))
    if verdict.predicate == "deadlock" and verdict.holds is Holds.TRUE:
        leaning &= {*verdict.remainder}
    return begun.outside_before if leaning else begun.outside


def _undisturbed(begun: Instant, ended: Instant) -> bool:
    """Whether nothing came from outside meanwhile, no request of a dead process is left, and everybody ought to be a member."""
    if begun.outside != ended.outside or begun.departed or ended.departed:
        return False
    return not (begun.of_the_dead or ended.of_the_dead)


def _of_the_dead(world: World) -> bool:
    """Whether a request is in transit whose sender has ended: no report can mention it."""
    return any(world.alive(call.key[0], call.key[1]) is None for call in world.calls.values() if call.requests)


def _knowably_held_up(world: World, members: frozenset[ProcessName], knowable: frozenset[PartyName]) -> frozenset[PartyName]:
    return oracle.stuck(world, View(members=members, doubt=True, deadlines=False)) if _has_deadlines(world) else knowable


def _has_deadlines(world: World) -> bool:
    return bool(world.enabled.bags["expire"].actions)


def _lost_messages(world: World, verdict: Verdict, begun: Instant, ended: Instant) -> None:
    """Messages are lost for good once no process is left to receive them."""
    about = f"snapshot {verdict.snapshot.id}, lost-message {verdict.holds.value}: {verdict.witness.text}"
    if verdict.holds is Holds.TRUE and not (ended.terminated and ended.lost_messages):
        world.breach(f"safe: {about}: {ended.lost_messages} were lost when it ended")
    if verdict.holds is Holds.FALSE and begun.knowably_terminated and begun.lost_messages:
        world.breach(f"sound: {about}: {begun.lost_messages} were lost when it began")


def _termination(world: World, verdict: Verdict, begun: Instant, ended: Instant) -> None:
    about = f"snapshot {verdict.snapshot.id}, {verdict.predicate} {verdict.holds.value}"
    if not _undisturbed(begun, ended):
        return
    if verdict.holds is Holds.TRUE and not ended.terminated:
        world.breach(f"safe: {about}: it was not so when it ended")
    if verdict.holds is Holds.FALSE and begun.knowably_terminated:
        world.breach(f"sound: {about}: it was so when it began")


def _names(parties: Sequence[PartyName] | frozenset[PartyName]) -> str:
    return ", ".join(sorted(parties)) or "nobody"
