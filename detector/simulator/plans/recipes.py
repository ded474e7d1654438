"""The worlds by name: each recipe generates a plan from a seed, with a different mixture of operations and faults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random

from detector.simulator.plans import task_recipes, variants
from detector.simulator.plans.mixture import fleet_of, mixture, random_call, random_weights
from detector.simulator.plans.plan import (
    Acquire,
    Call,
    Fault,
    GiveBack,
    Limits,
    Method,
    Op,
    Plan,
    Release,
    Service,
    Work,
)
from stilltrue.model import ProcessName

Recipe = Callable[[Random, int, int], Plan]


def plan(name: str, seed: int, processes: int | None = None) -> Plan:
    """Generate the plan of the world ``name`` from ``seed``; ``processes``: their number (None: a few, chosen by the seed).

    Raises
    ------
    KeyError
        When there is no world of that name.
    """
    recipe = RECIPES[name]
    random = Random(f"{name} {seed}")
    return recipe(random, seed, processes or random.randint(2, 5))


def _pools(random: Random, seed: int, processes: int) -> Plan:
    return mixture("pools", random, seed, processes)


def _fans(random: Random, seed: int, processes: int) -> Plan:
    return mixture("fans", random, seed, processes, wide=0.6, pools=(0, 1, 1, 2), silent=0.1, fifo=0.2)


def _deadlines(random: Random, seed: int, processes: int) -> Plan:
    usual = mixture("deadlines", random, seed, processes, wide=0.3, deadline=0.3, pools=(0, 1, 1))
    if random.random() < 0.6:
        return usual
    late = replace(usual.weights, deliver=0.03, expire=1.0, marker=1.0, report=2.0, ask=0.4)
    return replace(usual, weights=late, asks=8)  # messages arrive after their sender's deadline


def _locks(random: Random, seed: int, processes: int) -> Plan:
    return mixture("locks", random, seed, processes, lock=0.5, wide=0.2, pools=(0, 1, 1, 2))


def _fleet_locks(random: Random, seed: int, processes: int) -> Plan:
    return mixture("fleet-locks", random, seed, processes, lock=0.6, fleet=0.6, wide=0.2, pools=(0, 0, 1, 2))


def _tokens(random: Random, seed: int, processes: int) -> Plan:
    return mixture("tokens", random, seed, processes, token=0.5, wide=0.3, silent=0.3, pools=(0, 0, 1, 2))


def _failures(random: Random, seed: int, processes: int) -> Plan:
    faults = {Fault.FAIL_CALL: 2, Fault.LOSE_MARKER: 1, Fault.LOSE_REPORT: 1, Fault.STALL: 2}
    return mixture("failures", random, seed, processes, wide=0.3, deadline=0.1, silent=0.1, faults=faults)


def _churn(random: Random, seed: int, processes: int) -> Plan:
    faults = {Fault.CRASH: 2, Fault.RESTART: 2, Fault.JOIN: 1, Fault.LEAVE: 1, Fault.STALL: 1}
    return mixture("churn", random, seed, processes, wide=0.3, lock=0.2, fleet=0.3, silent=0.1, faults=faults, spares=1)


def _store(random: Random, seed: int, processes: int) -> Plan:
    """Fleet-wide locks that are taken in both orders, mostly under a gate that prevents deadlocks; and some hogs."""

    def rounds() -> tuple[Op, ...]:
        ops: list[Op] = []
        for _ in range(random.randint(2, 5)):
            pair = random.sample(("x", "y"), 2)
            taken = random.choice(
                (["gate", *pair], ["gate", *pair], pair[:1], ["wide"], pair if random.random() < 0.3 else pair[:1])
            )
            ops += [Acquire(resource=one, fleet=True) for one in taken]
            ops.extend(Work() for _ in range(random.randint(0, 2)))
            ops += [Release(resource=one) for one in reversed(taken)]
        hog = [Acquire(resource="wide", fleet=True), Acquire(resource="own"), Acquire(resource="own")]
        return (*ops, *hog) if random.random() < 0.2 else tuple(ops)

    instances = fleet_of(random, processes, processes)
    return Plan(
        name="store",
        seed=seed,
        services={service: Service(methods={}) for service in instances.values()},
        instances=instances,
        roots=tuple((name, rounds()) for name in instances for _ in range(random.randint(1, 2))),
        locks={"wide": 2},
        weights=replace(random_weights(random), ask=random.choice((0.2, 2.0)), marker=random.choice((0.1, 0.3)), report=4.0),
        asks=random.randint(8, 16),
        pending_max=random.randint(1, 4),
    )


def _retries(random: Random, seed: int, processes: int) -> Plan:
    faults = {Fault.RETRY: random.randint(1, 4)}
    usual = mixture("retries", random, seed, processes, wide=0.2, pools=(1, 1, 1, 2), faults=faults)
    return replace(usual, copies_max=1 + faults[Fault.RETRY], asks=random.randint(4, 8))


def _streams(random: Random, seed: int, processes: int) -> Plan:
    often = 0.1 if random.random() < 0.3 else 0.0
    usual = mixture("streams", random, seed, processes, stream=0.6, deadline=often, pools=(0, 1, 1, 2))
    usual = replace(usual, asks=random.randint(4, 8), pending_max=random.randint(1, 3))
    if random.random() < 0.5:
        return usual
    slow = replace(usual.weights, deliver=0.05, marker=1.0, report=2.0, ask=0.4)
    return replace(usual, weights=slow, asks=10)  # items are in transit for longer than a snapshot takes


def _cancels(random: Random, seed: int, processes: int) -> Plan:
    """Races whose losers are cancelled, and cancelled calls; some handlers are interrupted, others are not."""
    wide, deadline = random.choice((0.3, 0.6)), random.choice((0.0, 0.1))
    usual = mixture(
        "cancels",
        random,
        seed,
        processes,
        wide=wide,
        silent=0.15,
        deadline=deadline,
        lock=0.3,
        cancel=0.3,
        heeding=0.6,
        pools=(0, 0, 1, 2),
    )
    return replace(usual, asks=random.randint(4, 8))


def _repeats(random: Random, seed: int, processes: int) -> Plan:
    """Connections that are lost while the server continues, and requests that are sent again to another server."""
    faults = {Fault.LOSE_CONNECTION: random.randint(1, 4), Fault.RETRY: random.randint(0, 2)}
    usual = mixture(
        "repeats", random, seed, processes, wide=0.2, lock=0.4, cancel=0.1, heeding=0.5, pools=(0, 1, 1, 2), faults=faults
    )
    slow = replace(usual.weights, deliver=random.choice((0.05, 0.3, 1.0)), marker=2.0, report=4.0, ask=0.4, fault=0.1)
    return replace(usual, copies_max=random.randint(2, 4), weights=slow, asks=random.randint(8, 16), pending_max=2)


def _hedges(random: Random, seed: int, processes: int) -> Plan:
    """Several copies of one request in transit at once, sent by a timer; the first answer wins."""
    usual = mixture("hedges", random, seed, processes, wide=0.2, lock=0.1, cancel=0.1, heeding=0.2, pools=(0, 1, 1, 2))
    weights = replace(usual.weights, expire=random.choice((0.05, 0.2, 1.0)), deliver=random.choice((0.1, 0.3, 1.0)))
    return replace(usual, copies_max=2, hedged=True, depth=2, weights=weights, asks=random.randint(4, 8))


def _restarts(random: Random, seed: int, processes: int) -> Plan:
    """One fleet-wide lock, taken by tasks that run again when their process restarts; some never release it."""

    def task() -> tuple[Op, ...]:
        ops: list[Op] = []
        for _ in range(random.randint(0, 2)):
            ops += [Acquire(resource="x", fleet=True), *(Work() for _ in range(random.randint(0, 2))), Release(resource="x")]
        hog = [Acquire(resource="x", fleet=True), Acquire(resource="own"), Acquire(resource="own")]
        return (*ops, *hog) if random.random() < 0.4 or not ops else tuple(ops)

    instances = fleet_of(random, processes, processes)
    return Plan(
        name="restarts",
        seed=seed,
        services={service: Service(methods={}) for service in instances.values()},
        instances=instances,
        roots=tuple((name, task()) for name in instances),
        faults={Fault.CRASH: 6, Fault.RESTART: 6},
        weights=replace(random_weights(random), fault=random.choice((0.1, 0.3)), ask=random.choice((0.2, 2.0)), report=4.0),
        asks=random.randint(8, 16),
        pending_max=random.randint(1, 3),
        reruns=True,
    )


def _strangers(random: Random, seed: int, processes: int) -> Plan:
    """Some processes without an agent, also behind the same address as others; several servers in one process."""
    processes = max(processes, 3)
    usual = mixture("strangers", random, seed, processes, wide=0.3, lock=0.2, fleet=0.3, heeding=0.2, pools=(0, 1, 1, 2))
    usual = _one_method(usual)
    names, services = list(usual.instances), sorted(usual.services)
    behind = {one: random.sample(services, random.randint(1, len(services))) for one in services if random.random() < 0.4}
    return replace(
        usual,
        uninstrumented=tuple(name for name in names[1:] if random.random() < 0.35),
        routes={address: tuple(route) for address, route in behind.items()},
        also={name: tuple(s for s in services if s != usual.instances[name]) for name in names if random.random() < 0.3},
    )


def _forgeries(random: Random, seed: int, processes: int) -> Plan:
    """Strangers that call under members' names, with numbers that these never sent, so that reports contradict each other."""
    usual = mixture("forgeries", random, seed, max(processes, 3), wide=0.3, lock=0.2, heeding=0.3, pools=(0, 1, 1, 2))
    names, services = list(usual.instances), len(usual.services)
    forgers = tuple(names[1:2] + [name for name in names[2:-1] if random.random() < 0.2])

    def forgery() -> tuple[Op, ...]:
        ops: list[Op] = []
        for _ in range(random.randint(1, 3)):
            ops += [Work() for _ in range(random.randint(0, 3))]
            call = random_call(random, services, 1, wide=0.0, deadline=0.0, silent=0.0, token=0.0)
            ops.append(replace(call, needs=0))
        return tuple(ops)

    late = tuple((name, forgery()) for name in forgers if random.random() < 0.7)
    return replace(usual, uninstrumented=forgers, forgers=forgers, roots=(*usual.roots, *late), asks=random.randint(4, 8))


def _gateways(random: Random, seed: int, processes: int) -> Plan:
    """Calls through a process without an agent, which passes the stamp on with its own call and waits only for that."""
    usual = _one_method(mixture("gateways", random, seed, max(processes, 3), wide=0.2, lock=0.2, pools=(0, 1, 1, 2)))
    services, gate = sorted(usual.services), ProcessName("gate-0")
    behind = random.choice(services)
    return replace(
        usual,
        services={**usual.services, "gate": Service(methods={"m0": Method(body=(Call(targets=(("behind", "m0"),)),))})},
        instances={**usual.instances, gate: "gate"},
        routes={"behind": (behind,), **{one: ("gate",) for one in services if one == behind or random.random() < 0.2}},
        uninstrumented=(gate,),
        gateways=(gate,),
        depth=usual.depth + 1,
    )


def _one_method(plan: Plan) -> Plan:
    """``plan`` with one method per service, so that any address can route to any service; pools get their service's name."""
    services = {}
    for name, spec in plan.services.items():
        method = spec.methods["m0"]
        pool = f"{name}.{method.pool}" if method.pool else ""
        sizes = {f"{name}.{pool}": size for pool, size in spec.pools.items()}
        services[name] = Service(methods={"m0": replace(method, body=_calling_m0(method.body), pool=pool)}, pools=sizes)
    return replace(plan, services=services, roots=tuple((process, _calling_m0(body)) for process, body in plan.roots))


def _calling_m0(body: tuple[Op, ...]) -> tuple[Op, ...]:
    def simple(op: Op) -> Op:
        return replace(op, targets=tuple((service, "m0") for service, _ in op.targets)) if isinstance(op, Call) else op

    return tuple(simple(op) for op in body)


def _bounds(random: Random, seed: int, processes: int) -> Plan:
    """Recorders that must forget: few callers, answers and doubts; messages arrive after their sender's deadline."""
    deadline, token = random.choice(((0.2, 0.0), (0.8, 0.0), (0.0, 0.5)))
    usual = mixture(
        "bounds", random, seed, processes, wide=0.4, silent=0.2, deadline=deadline, cancel=0.3, token=token, pools=(0, 0, 1, 2)
    )
    few = Limits(callers_max=random.randint(1, 3), answered_max=random.randint(1, 3), doubts_max=random.randint(1, 2))
    late = replace(usual.weights, deliver=random.choice((0.02, 0.2)), expire=1.0, marker=1.0, report=2.0, ask=0.4)
    return replace(usual, limits=few, weights=late, asks=8)


def _clocks(random: Random, seed: int, processes: int) -> Plan:
    """Clocks that differ by hours, and deadlines."""
    usual = mixture("clocks", random, seed, processes, wide=0.3, deadline=0.4, heeding=0.2, lock=0.3, pools=(0, 1, 1))
    return replace(usual, clocks={name: round(random.uniform(-7200, 7200), 1) for name in usual.instances}, asks=6)


def _detectors(random: Random, seed: int, processes: int) -> Plan:
    """Detector restarts, duplicate reports, and agents that are late, or leave and come back."""
    faults = {
        Fault.NEW_DETECTOR: random.randint(1, 2),
        Fault.DUPLICATE: 3,
        Fault.LOSE_MARKER: 1,
        Fault.LEAVE: random.randint(0, 1),
        Fault.LOSE_MEMBER: 2,
        Fault.STALL: 1,
    }
    usual = mixture("detectors", random, seed, processes, wide=0.3, lock=0.3, fleet=0.3, silent=0.1, faults=faults)
    weights = replace(usual.weights, hello=random.choice((0.02, 0.2, 1.0)), fault=0.2, ask=0.4)
    return replace(usual, weights=weights, asks=random.randint(6, 12))


def _handovers(random: Random, seed: int, processes: int) -> Plan:
    """Locks that other parties release, beside locks that their holders release."""

    def changed(op: Op) -> list[Op]:
        if isinstance(op, Acquire):
            return [replace(op, bare=random.random() < 0.3)]
        return [op, GiveBack(resource=f"lock{random.randrange(2)}")] if random.random() < 0.4 else [op]

    usual = mixture("handovers", random, seed, processes, lock=0.5, fleet=0.2, wide=0.2, pools=(0, 1, 1, 2))
    roots = tuple((process, tuple(new for op in body for new in changed(op))) for process, body in usual.roots)
    return replace(usual, roots=roots, asks=6)


def _looks(random: Random, seed: int, processes: int) -> Plan:
    """Like ``store``, with processes that stop for a while, and looks that are lost or late."""
    faults = {Fault.STALL: 4, Fault.LOSE_MARKER: 3, Fault.LOSE_REPORT: 3}
    usual = _store(random, seed, processes)
    weights = replace(usual.weights, fault=random.choice((0.2, 1.0)), tick=random.choice((0.03, 0.3)))
    return replace(usual, name="looks", faults=faults, weights=weights)


def _cures(random: Random, seed: int, processes: int) -> Plan:
    """Deadlocks whose victims are aborted: some are tasks, which are cancelled, and some threads, which continue."""
    faults = {Fault.CURE: random.randint(1, 4)}
    usual = mixture("cures", random, seed, processes, wide=0.3, lock=0.2, heeding=0.6, pools=(0, 1, 1, 2), faults=faults)
    weights = replace(usual.weights, fault=0.5, ask=random.choice((0.03, 0.1)), marker=random.choice((0.1, 1.0)))
    return replace(usual, weights=weights, asks=random.randint(4, 8), depth=2)


def _counts(random: Random, seed: int, processes: int) -> Plan:
    return variants.counted(random.choice((_pools, _fans))(random, seed, processes), random)


def _scopes(random: Random, seed: int, processes: int) -> Plan:
    return variants.scoped(random.choice((_pools, _fans, _locks))(random, seed, processes), random)


RECIPES: Mapping[str, Recipe] = {
    "pools": _pools,
    "fans": _fans,
    "deadlines": _deadlines,
    "locks": _locks,
    "fleet-locks": _fleet_locks,
    "tokens": _tokens,
    "failures": _failures,
    "churn": _churn,
    "store": _store,
    "retries": _retries,
    "streams": _streams,
    "cancels": _cancels,
    "repeats": _repeats,
    "hedges": _hedges,
    "restarts": _restarts,
    "strangers": _strangers,
    "gateways": _gateways,
    "bounds": _bounds,
    "clocks": _clocks,
    "detectors": _detectors,
    "tasks": task_recipes.tasks,
    "handovers": _handovers,
    "looks": _looks,
    "counts": _counts,
    "scopes": _scopes,
    "jobs": task_recipes.jobs,
    "closers": task_recipes.closers,
    "forgeries": _forgeries,
    "cures": _cures,
}
