"""Explores every interleaving of a small world, visiting each distinct state once.

The real recorder, initiator and predicates run in each state. A state is identified by the history of each process and of the
detector: each event belongs to one of them and determines everything else, so orders of events with the same histories lead to
the same state (which includes the truth when a snapshot began). Nothing is random, so if any order of events breaks a promise,
it is found and reported.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from detector.simulator.checks import oracle
from detector.simulator.plans.plan import Acquire, Call, Join, Method, Op, Plan, Release, Service, Stop
from detector.simulator.simulated_detector import SimulatedDetector
from detector.simulator.world.actions.handlers import HANDLERS
from detector.simulator.world.enabled_actions import Action, owner_of
from detector.simulator.world.engine import Engine
from detector.simulator.world.world import World
from stilltrue.model import PartyName, ProcessName

KINDS = ("step", "deliver", "take", "expire", "marker", "report")
STATES_MAX = 200_000


@dataclass(slots=True, kw_only=True)
class Exploration:
    """The result of an exploration. ``ends``: final states, without enabled actions. ``whole``: no state was left out."""

    states: int = 0
    steps: int = 0
    snapshots: int = 0
    ends: int = 0
    whole: bool = True
    breaches: list[tuple[str, tuple[Action, ...]]] = field(default_factory=list)


@dataclass(slots=True)
class _Visit:
    """A world, the path that led to its state, and the parties that were stuck before the last step."""

    engine: Engine
    watch: SimulatedDetector
    path: tuple[Action, ...]
    stuck: frozenset[PartyName]
    histories: dict[ProcessName, int] = field(default_factory=dict)

    @property
    def world(self) -> World:
        """The visited world."""
        return self.engine.world

    def do(self, action: Action) -> None:
        if action[0] in {"ask", "tick", "report", "looked"}:
            self.watch.do(action)
        else:
            self.engine.do(action)
        self.path = (*self.path, action)
        name = owner_of(action)
        self.histories[name] = hash((self.histories.get(name, 0), action))

    def fingerprint(self) -> int:
        """A number that is equal for equal states."""
        return hash((frozenset(self.histories.items()), tuple(self.watch.begun.items())))

    def choices(self) -> list[Action]:
        """The possible next actions; the detector's time passes only if there is no other."""
        found = [concrete for action in self.world.enabled.all(*KINDS) for concrete in self.world.concrete(action)]
        if self.watch.asks_left:
            found.append(("ask",))
        if not found and self.watch.begun:
            found.append(("tick",))
        return found


def explore(plan: Plan, *, states_max: int = STATES_MAX) -> Exploration:
    """Explore every interleaving of ``plan``, up to ``states_max`` states."""
    found = Exploration()
    seen: set[int] = set()
    todo: list[tuple[Action, ...]] = [()]
    while todo:
        if len(seen) >= states_max:
            found.whole = False
            break
        visit = _arrive(plan, todo.pop())
        _follow(visit, seen, todo, found)
    found.states = len(seen)
    return found


def _arrive(plan: Plan, path: tuple[Action, ...]) -> _Visit:
    """Replay ``path``; only its last step is checked."""
    engine = Engine(World(plan, step_seconds=0.0), HANDLERS)
    watch = SimulatedDetector(engine)
    visit = _Visit(engine, watch, (), frozenset())
    watch.checking = False
    for action in path[:-1]:
        visit.do(action)
    watch.checking = True
    visit.stuck = oracle.stuck(engine.world)
    for action in path[-1:]:
        visit.do(action)
    return visit


def _follow(visit: _Visit, seen: set[int], todo: list[tuple[Action, ...]], found: Exploration) -> None:
    """Take the first action in each state and queue the others, until a known state is reached."""
    while True:
        found.steps += 1
        now_stuck = oracle.stuck(visit.world)
        if not visit.stuck <= now_stuck:
            visit.world.breach(f"the oracle erred: {sorted(visit.stuck - now_stuck)} was stuck, but is no longer")
        visit.stuck = now_stuck
        if visit.world.breaches:
            found.breaches.append((visit.world.breaches[0], visit.path))
            return
        fingerprint = visit.fingerprint()
        if fingerprint in seen:
            return
        seen.add(fingerprint)
        choices = visit.choices()
        if not choices:
            found.ends += 1
            found.snapshots += visit.watch.tally.snapshots
            return
        todo.extend((*visit.path, choice) for choice in choices[1:])
        visit.do(choices[0])


def _small(
    name: str,
    *,
    pool: int = 1,
    roots: dict[str, Call],
    methods: dict[str, Call | None],
    token: str = "",
    depth: int = 2,
) -> Plan:
    """A plan with one process per service, named after it; each service has one method ``m`` that makes at most one call."""
    return Plan(
        name=name,
        seed=0,
        services={
            service: Service(
                methods={"m": Method(body=(call,) if call else (), pool="pool" if pool else "", returns_token=False)},
                pools={"pool": pool} if pool else {},
            )
            for service, call in methods.items()
        },
        instances={ProcessName(f"{service}-0"): service for service in methods},
        roots=tuple((ProcessName(f"{service}-0"), (call,)) for service, call in roots.items()),
        tokens={ProcessName(f"{service}-0"): int(service == token) for service in methods} if token else {},
        asks=1,
        pending_max=1,
        depth=depth,
    )


def _without_calls(name: str, bodies: dict[str, tuple[tuple[Op, ...], ...]]) -> Plan:
    """A plan of processes that serve no calls, each with its tasks."""
    names = {process: ProcessName(f"{process}-0") for process in bodies}
    return Plan(
        name=name,
        seed=0,
        services={process: Service(methods={}) for process in bodies},
        instances={names[process]: process for process in bodies},
        roots=tuple((names[process], body) for process, tasks in bodies.items() for body in tasks),
        asks=1,
        pending_max=1,
    )


def _lock_all(*locks: str) -> tuple[Op, ...]:
    """Acquire fleet-wide locks in this order, then release them."""
    return (*(Acquire(resource=one, fleet=True) for one in locks), *(Release(resource=one) for one in locks))


def _call(*services: str, needs: int = 1, token: bool = False) -> Call:
    return Call(targets=tuple((service, "m") for service in services), needs=needs, token=token)


SMALL_WORLDS: tuple[Plan, ...] = (
    _small("a call and its reply", pool=0, roots={"a": _call("b")}, methods={"a": None, "b": None}),
    _small("a worker that calls its own pool", roots={"a": _call("b")}, methods={"a": None, "b": _call("b")}),
    _small("two pools in a cycle", depth=3, roots={"a": _call("b")}, methods={"a": _call("b"), "b": _call("a")}),
    _small(
        "three pools in a ring",
        depth=4,
        roots={"a": _call("b")},
        methods={"a": _call("b"), "b": _call("c"), "c": _call("a")},
    ),
    _small(
        "a token that is passed on",
        pool=0,
        token="a",
        roots={"a": _call("b", token=True)},
        methods={"a": None, "b": _call("a", token=True)},
    ),
    _small(
        "a message that no party awaits",
        pool=0,
        roots={"a": _call("b", needs=0)},
        methods={"a": None, "b": _call("a", needs=0)},
    ),
    _without_calls("a lock that goes round", {"a": (_lock_all("x"),), "b": (_lock_all("x"),)}),
    _without_calls("two locks in both orders", {"a": (_lock_all("x", "y"),), "b": (_lock_all("y", "x"),)}),
    _without_calls(
        "two tasks that wait for each other, and a third that may stop one",
        {"a": ((Join(task=2),), (Join(task=1),), (Stop(task=1),))},
    ),
)
"""Worlds of 2 or 3 processes and a few messages."""
