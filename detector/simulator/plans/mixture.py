"""Generates a random plan with given proportions of calls, locks, streams and work, the basis of most recipes."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from detector.simulator.plans.plan import (
    Acquire,
    Call,
    Cancel,
    Fault,
    Finish,
    Method,
    Op,
    Open,
    Order,
    Plan,
    Put,
    Release,
    Service,
    Take,
    Weights,
    Work,
)
from stilltrue.model import ProcessName


def fleet_of(random: Random, processes: int, services: int) -> dict[ProcessName, str]:
    """Name ``processes`` instances, at least one of each service."""
    fleet = {}
    for index in range(processes):
        service = f"s{index if index < services else random.randrange(services)}"
        fleet[ProcessName(f"{service}-{index}")] = service
    return fleet


def _stream_ops(random: Random, services: int, methods: int, *, deadline: float) -> list[Op]:
    """A stream with a few items, sometimes with a call in between; or operations on the caller's stream."""
    if random.random() < 0.5:
        return [random.choice((Put(up=True), Take(up=True), Take(up=True))) for _ in range(random.randint(1, 3))]
    target = (f"s{random.randrange(services)}", f"m{random.randrange(methods)}")
    until = round(random.uniform(0.05, 1.0), 2) if random.random() < deadline else None
    ops: list[Op] = [Open(target=target, deadline_seconds=until)]
    for _ in range(random.randint(1, 4)):
        ops.append(random.choice((Put(), Put(), Take())))
        if random.random() < 0.15:
            ops.append(random_call(random, services, methods, wide=0.0, deadline=0.0, silent=0.0, token=0.0))
    return [*ops, Finish()] if random.random() < 0.8 else ops


def random_call(
    random: Random, services: int, methods: int, *, wide: float, deadline: float, silent: float, token: float
) -> Call:
    """A call of one to three methods; the keyword arguments are the probabilities of its traits."""
    count = random.choice((2, 2, 3)) if random.random() < wide else 1
    targets = tuple((f"s{random.randrange(services)}", f"m{random.randrange(methods)}") for _ in range(count))
    needs = 0 if random.random() < silent else random.randint(1, count)
    return Call(
        targets=targets,
        needs=needs,
        deadline_seconds=round(random.uniform(0.05, 1.0), 2) if random.random() < deadline else None,
        token=random.random() < token,
    )


def random_weights(random: Random) -> Weights:
    """Random weights for each kind of action."""
    return Weights(
        marker=random.choice((0.05, 0.2, 1.0)),
        report=random.choice((0.1, 0.5, 2.0)),
        deliver=random.choice((0.3, 1.0, 3.0)),
        take=random.choice((0.3, 1.0, 3.0)),
        ask=random.choice((0.05, 0.15, 0.4)),
        fault=random.choice((0.05, 0.2)),
        tick=random.choice((0.005, 0.03)),
    )


def mixture(
    name: str,
    random: Random,
    seed: int,
    processes: int,
    *,
    wide: float = 0.0,
    deadline: float = 0.0,
    silent: float = 0.0,
    lock: float = 0.0,
    fleet: float = 0.0,
    token: float = 0.0,
    stream: float = 0.0,
    cancel: float = 0.0,
    heeding: float = 0.0,
    pools: tuple[int, ...] = (1, 1, 2),
    faults: Mapping[Fault, int] | None = None,
    spares: int = 0,
    fifo: float = 0.0,
) -> Plan:
    """Plan a world whose parties call, lock and work at random, in the given proportions."""
    services = random.randint(1, min(3, processes))
    methods = random.randint(1, 2)

    def body(longest: int) -> tuple[Op, ...]:
        ops: list[Op] = []
        for _ in range(random.randint(1, longest)):
            if random.random() < lock:
                resource = f"lock{random.randrange(2)}"
                ops.append(Acquire(resource=resource, fleet=random.random() < fleet))
                if random.random() < 0.3:
                    ops.append(Release(resource=resource))
            elif stream and random.random() < stream:
                ops += _stream_ops(random, services, methods, deadline=deadline)
            elif random.random() < 0.1:
                ops.append(Work())
            else:
                ops.append(random_call(random, services, methods, wide=wide, deadline=deadline, silent=silent, token=token))
                if cancel and random.random() < cancel:
                    ops.append(Cancel())
        return tuple(ops)

    specs = {}
    for index in range(services):
        sizes = {f"pool{number}": size for number in range(random.choice((1, 1, 2))) if (size := random.choice(pools))}
        specs[f"s{index}"] = Service(
            methods={
                f"m{number}": Method(
                    body=body(2) if random.random() < 0.8 else (),
                    pool=random.choice(tuple(sizes)) if sizes else "",
                    interruptible=random.random() < max(deadline, heeding),
                    returns_token=random.random() < token,
                )
                for number in range(methods)
            },
            pools=sizes,
        )
    instances = fleet_of(random, processes, services)
    names = list(instances)
    roots = tuple((random.choice(names), body(3)) for _ in range(random.randint(2, max(3, processes + 1))))
    return Plan(
        name=name,
        seed=seed,
        services=specs,
        instances=instances,
        roots=roots,
        tokens={one: random.randint(0, 2) for one in names} if token else {},
        locks={"lock0": random.choice((1, 1, 2))},
        faults=faults or {},
        spares={ProcessName(f"s{(at := random.randrange(services))}-x{number}"): f"s{at}" for number in range(spares)},
        order=Order.FIFO if random.random() < fifo else Order.ANY,
        weights=random_weights(random),
        asks=random.randint(2, 6),
        pending_max=random.randint(1, 4),
        depth=random.randint(2, 4),
    )
