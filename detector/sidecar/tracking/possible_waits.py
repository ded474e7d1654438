"""The waits that a program may be in, though its calls do not prove them; they withhold a FALSE, and support no TRUE.

The rules (docs/sidecar.md, "What it does not know"):

1. Somebody made each outstanding call, and may wait for it. If no inbound call in progress is known to have made it, a party
   of its own stands for its caller: ``stock/unknown-caller:Place#17``, or the inbound call that made it and has ended since.
2. An inbound call in progress that made calls and is in no known wait may wait for each of them: a stream, a method that is
   not always awaited, the rest of a fan-out. ``orders/calls-of:Place#1`` stands for this possibility.
3. An inbound call in progress that is in no known wait may have made any call of an unknown caller that began later.
4. An inbound call that has not acted may still be queued: behind callers of rule 1, if these leave it no worker, or, if the
   size of the pool is unknown and a second has passed, behind all calls that have acted.

Each possibility is a wait of a party that stands for it, and the second look always leaves that wait in doubt. So these parties
count as stuck only in the pessimistic view, and whoever waits for them as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from detector.core.counting import counted
from detector.sidecar.tracking.calls import InboundCall, OutboundCall
from stilltrue.model import PartyName, ProcessName, WaitNumber
from stilltrue.protocol.report import CallTarget, LocalWait, PartyTarget, Target

POSSIBLE_MIN = 2**51
"""The first number of a possible wait; the recorder's own numbers never come near it."""
SUSPECTED_MAX = 8
"""The maximum number of calls of unknown callers that one inbound call is said to wait for, the oldest first."""
UNACTED_SECONDS = 1.0
"""Rule 4: how long a call must not have acted before it may be queued behind a pool of unknown size."""


class _Kind(IntEnum):
    """Makes the numbers of different possible waits differ."""

    CALLER = 0
    CALLS = 1
    SUSPECT = 2
    QUEUE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Possible:
    """A possible wait; ``doubt``: why it is not certain (empty: only its targets are not)."""

    wait: LocalWait
    doubt: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramState:
    """What is known of the program at one moment.

    ``in_progress``: the number of inbound calls; ``served``: those of them that count as served. ``loose``: the program's
    outstanding calls that no inbound call in progress is known to have made. ``workers``: the size of its pool (None: unknown).
    ``declared``: the methods declared as never awaited. ``now``: in seconds of the recorder's clock.
    """

    process: ProcessName
    in_progress: int
    served: Sequence[InboundCall]
    loose: Sequence[OutboundCall]
    workers: int | None
    declared: Collection[str]
    now: float


def possible_waits(state: ProgramState) -> Iterator[Possible]:
    """The waits that the program may be in."""
    loose = sorted(state.loose, key=lambda call: call.made.number)
    callers = {call: _caller_of(state.process, call) for call in loose}
    for call, party in callers.items():
        yield Possible(wait=_wait(party, _Kind.CALLER, call.made.number, [_target(call)], call.made.since), doubt=_why(call))
    suspected = [call for call in loose if call.caller is None and not call.late and call.method not in state.declared]
    crowded = bool(loose) and state.workers is not None and state.in_progress + len(loose) > state.workers
    for inbound in state.served:
        if inbound.over or inbound.wait is not None:
            continue
        found: list[PartyName] = []
        if made := [call for call in inbound.made if not call.over]:
            one = _calls_of(state.process, inbound, made)
            yield one
            found += [one.wait.waiter] * any(call.method not in state.declared for call in made)
        found += [callers[call] for call in suspected if call.made.since > inbound.served.since][:SUSPECTED_MAX]
        if crowded and not inbound.acted:
            found += list(callers.values())[:SUSPECTED_MAX]
        elif (queue := _queue(state, inbound, callers.values())) is not None:
            yield queue
            found.append(queue.wait.waiter)
        if found:
            targets = [PartyTarget(party=party) for party in dict.fromkeys(found)]
            yield Possible(wait=_wait(inbound.party, _Kind.SUSPECT, inbound.served.serial, targets, inbound.served.since))


def _calls_of(process: ProcessName, inbound: InboundCall, made: Sequence[OutboundCall]) -> Possible:
    """Rule 2."""
    party = _name(process, "calls-of", _short(inbound.party))
    newest = max(made, key=lambda call: call.made.number)
    methods = ", ".join(dict.fromkeys(call.method for call in made))
    doubt = f"it is not known whether {inbound.party} waits for its {counted(len(made), 'outstanding call')} ({methods})"
    return Possible(
        wait=_wait(party, _Kind.CALLS, newest.made.number, [_target(call) for call in made], newest.made.since), doubt=doubt
    )


def _queue(state: ProgramState, inbound: InboundCall, callers: Iterable[PartyName]) -> Possible | None:
    """Rule 4, for a pool of unknown size; None if nothing can occupy its workers."""
    if state.workers is not None or inbound.acted or state.now < inbound.served.since + UNACTED_SECONDS:
        return None
    ahead = [*callers, *(call.party for call in state.served if call.acted and not call.over)]
    if not ahead:
        return None
    party = _name(state.process, "queue-for", _short(inbound.party))
    targets = [PartyTarget(party=one) for one in dict.fromkeys(ahead)]
    return Possible(
        wait=_wait(party, _Kind.QUEUE, inbound.served.serial, targets, inbound.served.since, needs=1),
        doubt=(
            f"{inbound.party} may be queued: how many calls the program serves at once is unknown "
            "(--workers; see stilltrue doctor)"
        ),
    )


def _caller_of(process: ProcessName, call: OutboundCall) -> PartyName:
    """Rule 1."""
    if call.caller is not None:
        return call.caller.party
    return _name(process, "unknown-caller", f"{call.method.rpartition('/')[2]}#{call.made.number}")


def _why(call: OutboundCall) -> str:
    if call.caller is not None:
        return f"it made {call.method}, and its own call has ended meanwhile; its handler may still wait"
    return (
        f"who made {call.method} is unknown, and may wait for it: neither stilltrue-party nor a trace or request id names a "
        "call in progress (see stilltrue doctor)"
    )


def _name(process: ProcessName, what: str, of: str) -> PartyName:
    return PartyName(f"{process}/{what}:{of}")


def _short(party: PartyName) -> str:
    return party.partition("/")[2]


def _target(call: OutboundCall) -> CallTarget:
    return CallTarget(number=call.made.number)


def _wait(
    party: PartyName, kind: _Kind, number: int, among: Sequence[Target], since: float, *, needs: int | None = None
) -> LocalWait:
    return LocalWait(
        waiter=party,
        number=WaitNumber(POSSIBLE_MIN + len(_Kind) * number + kind),
        among=tuple(among),
        needs=len(among) if needs is None else needs,
        since=since,
        uncoloured=True,
    )
