"""Checks the promises (docs/design.md section 2) for a verdict: safe, sound, stable, and an exact remainder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from detector.core.protocol.assembler import Assembled
from detector.simulator.checks import oracle
from detector.simulator.checks.oracle import View
from detector.simulator.world.world import World
from stilltrue.model import Holds, PartyName, ProcessName, Verdict, process_of

CORE_PARTIES_MAX = 300
"""With more stuck parties the core is not checked, since its naive computation takes quadratic time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instant:
    """The truth at one instant, as far as promises depend on it.

    ``outside``: number of interventions so far; ``outside_before``: the number when the last snapshot ended.
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
        of_the_dead=_has_request_of_dead(world),
    )


def check_promises(
    world: World, assembled: Assembled, verdicts: Sequence[Verdict], *, raw: Assembled, begun: Instant, ended: Instant
) -> None:
    """Check the verdicts on one snapshot and record broken promises. ``raw``: the snapshot before its verification round."""
    for verdict in verdicts:
        match verdict.predicate:
            case "deadlock":
                _deadlock(world, assembled, raw, verdict, begun, ended)
            case "gridlock":
                if _interventions_before(world, raw, verdict, begun) == ended.outside:
                    _gridlock(world, assembled, verdict, begun, ended)
            case "termination" | "phase-ended":
                _termination(world, verdict, begun, ended)
            case "quiescence":
                if _undisturbed(begun, ended) and _interventions_before(world, raw, verdict, begun) == ended.outside:
                    _quiescence(world, verdict, begun, ended)
            case "token-lost" | "token-duplicated":
                _tokens(world, verdict, begun, ended)
            case "lost-message":
                _lost_messages(world, verdict, begun, ended)


def check_group(world: World, assembled: Assembled, verdict: Verdict, *, begun: Instant, ended: Instant) -> None:
    """Check a scope's deadlock verdict: each named party is in the scope, and stuck even if all others can move."""
    about = f"snapshot {verdict.snapshot.id}, deadlock {verdict.holds.value} in {world.plan.scope}"
    if begun.outside != ended.outside:
        return
    missing = frozenset(assembled.snapshot.missing)
    knowable = frozenset(name for name in begun.knowable_group & ended.knowable_group if process_of(name) not in missing)
    named = frozenset(name for name in verdict.remainder if "~" not in name)
    if verdict.holds is Holds.TRUE and not named <= ended.group:
        world.breach(f"safe: {about}: {_names(named - ended.group)} could move when it ended")
    certain = not missing and not assembled.snapshot.waits.uncoloured.any()
    if verdict.holds is Holds.TRUE and certain and not knowable <= named:
        world.breach(f"exact: {about}: {_names(knowable - named)} was stuck when it began, but is not named")
    if verdict.holds is Holds.FALSE and knowable:
        world.breach(f"sound: {about}: {_names(knowable)} could never move when it began")


def check_interim(
    world: World, assembled: Assembled, deadlock: Verdict, gridlock: Verdict, *, raw: Assembled, begun: Instant, ended: Instant
) -> None:
    """Check an interim result: some parties are stuck, forever or until a deadline, among them all that are named."""
    about = f"snapshot {deadlock.snapshot.id}, deadlock {deadlock.holds.value} before its round was over"
    if Holds.TRUE not in (deadlock.holds, gridlock.holds):
        world.breach(f"live: {about}: some parties are certainly stuck")
    if deadlock.holds is Holds.TRUE:
        _remainder(world, deadlock, about)
        if _interventions_before(world, raw, deadlock, begun) == ended.outside:
            _stuck(world, deadlock, about, begun, ended, whole=False)
    if gridlock.holds is Holds.TRUE and _interventions_before(world, raw, gridlock, begun) == ended.outside:
        _gridlock(world, assembled, gridlock, begun, ended)


def _deadlock(world: World, assembled: Assembled, raw: Assembled, verdict: Verdict, begun: Instant, ended: Instant) -> None:
    about = f"snapshot {verdict.snapshot.id}, deadlock {verdict.holds.value}"
    missing = frozenset(assembled.snapshot.missing)
    knowable = frozenset(name for name in begun.knowable & ended.knowable if process_of(name) not in missing)
    undisturbed = _interventions_before(world, raw, verdict, begun) == ended.outside
    certain = not missing and not assembled.snapshot.waits.uncoloured.any()
    if verdict.holds is Holds.TRUE:
        _remainder(world, verdict, about)
        if undisturbed:
            _stuck(world, verdict, about, begun, ended, whole=certain and world.plan.copies_max == 1)
        if undisturbed and certain and not knowable <= frozenset(verdict.remainder):
            world.breach(f"exact: {about}: {_names(knowable - {*verdict.remainder})} was stuck when it began, but is not named")
    elif verdict.holds is Holds.FALSE and undisturbed and knowable:
        world.breach(f"sound: {about}: {_names(knowable)} could never move when it began")
    elif verdict.holds is Holds.UNDETERMINED and certain:
        world.breach(f"live: {about}: no member is missing and nothing is unconfirmed")


def _remainder(world: World, verdict: Verdict, about: str) -> None:
    """Check that the remainder is not empty, and that core and behind partition it."""
    if not verdict.remainder:
        world.breach(f"exact: {about}: the remainder is empty")
    if {*verdict.core, *verdict.behind} != {*verdict.remainder} or {*verdict.core} & {*verdict.behind}:
        world.breach(f"exact: {about}: core and behind do not partition the remainder")


def _stuck(world: World, verdict: Verdict, about: str, begun: Instant, ended: Instant, *, whole: bool) -> None:
    """Check that no named party could move when the snapshot ended, or ever will, and that the core is correct.

    A task that could stop a named party then may have dropped its reference before the second look, which cannot find it.

    ``whole``: the graph does not omit an unconfirmed wait of a party while it contains another of its waits.
    """
    named = frozenset(name for name in verdict.remainder if "~" not in name)
    if not named <= ended.stuck:
        free = named - (ended.stuck_unless_stopped & oracle.stuck(world, View(members=ended.members)))
        if free:
            world.breach(f"safe: {about}: {_names(free)} could move when it ended")
            return
    world.frozen.update(dict.fromkeys(named, f"snapshot {verdict.snapshot.id}"))
    steady = begun.knowable == ended.stuck == named and begun.knowable_core == begun.core == ended.core != frozenset()
    if whole and steady and begun.core != {name for name in verdict.core if "~" not in name}:
        world.breach(f"exact: {about}: the core is {_names(begun.core)}, not {_names(verdict.core)}")


def _gridlock(world: World, assembled: Assembled, verdict: Verdict, begun: Instant, ended: Instant) -> None:
    """Check that no party of the remainder moves before ``until``; for FALSE, that no party was held up by deadlines."""
    if verdict.holds is Holds.FALSE:
        missing = frozenset(assembled.snapshot.missing)
        both = begun.knowably_held_up & ended.knowably_held_up
        held_up = frozenset(name for name in both if process_of(name) not in missing)
        alone = not (begun.stuck or ended.stuck) and begun.expired == ended.expired  # parties behind a deadlock do not count
        if held_up and alone:
            world.breach(f"sound: snapshot {verdict.snapshot.id}, gridlock false: only deadlines could free {_names(held_up)}")
    if verdict.holds is not Holds.TRUE:
        return
    about = f"snapshot {verdict.snapshot.id}, gridlock until {verdict.until}"
    named = frozenset(name for name in verdict.remainder if "~" not in name)
    if verdict.until is None:
        world.breach(f"exact: {about}: no deadline ends it, so it is not a gridlock")
    elif world.now < verdict.until:
        if not named <= ended.held_up:
            world.breach(f"safe: {about}: {_names(named - ended.held_up)} could move when it ended")
        for name in named:
            world.frozen_until[name] = max(verdict.until, world.frozen_until.get(name, 0.0))


def _quiescence(world: World, verdict: Verdict, begun: Instant, ended: Instant) -> None:
    if verdict.holds is Holds.TRUE and not ended.quiet:
        world.breach(f"safe: snapshot {verdict.snapshot.id}, quiescence true: a process could move when it ended")
    if verdict.holds is Holds.FALSE and begun.knowably_quiet:
        world.breach(f"sound: snapshot {verdict.snapshot.id}, quiescence false: the system was quiescent when it began")


def _tokens(world: World, verdict: Verdict, begun: Instant, ended: Instant) -> None:
    """Check that TRUE means a lost token. Tokens are lost only in replies without a receiver, and never created."""
    about = f"snapshot {verdict.snapshot.id}, {verdict.predicate} {verdict.holds.value}: {verdict.witness.text}"
    lost = verdict.predicate == "token-lost"
    if verdict.holds is Holds.TRUE and not (lost and ended.tokens_gone):
        world.breach(f"safe: {about}")
    if verdict.holds is Holds.FALSE and lost and begun.tokens_gone:
        world.breach(f"sound: {about}: {begun.tokens_gone} were gone when it began")


def _interventions_before(world: World, assembled: Assembled, verdict: Verdict, begun: Instant) -> int:
    """Number of interventions before the instant that the verdict is about.

    If calls may be repeated, confirmed waits already existed when the previous snapshot ended, and a connection lost since is
    an intervention.
    """
    if world.plan.copies_max == 1:
        return begun.outside
    waits = assembled.snapshot.waits
    unconfirmed = set(waits.named(waits.waiter[waits.uncoloured]))
    if verdict.predicate == "deadlock" and verdict.holds is Holds.TRUE:
        unconfirmed &= {*verdict.remainder}
    return begun.outside_before if unconfirmed else begun.outside


def _undisturbed(begun: Instant, ended: Instant) -> bool:
    """Whether there was no intervention, no request of a dead process is left, and all running processes are members."""
    if begun.outside != ended.outside or begun.departed or ended.departed:
        return False
    return not (begun.of_the_dead or ended.of_the_dead)


def _has_request_of_dead(world: World) -> bool:
    """Whether a request is in transit whose sender has ended, so that no report can mention it."""
    return any(world.alive(call.key[0], call.key[1]) is None for call in world.calls.values() if call.requests)


def _knowably_held_up(world: World, members: frozenset[ProcessName], knowable: frozenset[PartyName]) -> frozenset[PartyName]:
    return oracle.stuck(world, View(members=members, doubt=True, deadlines=False)) if _has_deadlines(world) else knowable


def _has_deadlines(world: World) -> bool:
    return bool(world.enabled.bags["expire"].actions)


def _lost_messages(world: World, verdict: Verdict, begun: Instant, ended: Instant) -> None:
    """Check the verdict against the messages lost; a message is lost once no process can receive it."""
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
        world.breach(f"safe: {about}: it did not hold when it ended")
    if verdict.holds is Holds.FALSE and begun.knowably_terminated:
        world.breach(f"sound: {about}: it held when it began")


def _names(parties: Sequence[PartyName] | frozenset[PartyName]) -> str:
    return ", ".join(sorted(parties)) or "none"
