"""Recipes of worlds whose tasks wait for each other, stop each other, and close channels that others depend on."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from detector.simulator.plans.mixture import mixture, random_call
from detector.simulator.plans.plan import Acquire, Close, Join, Op, Plan, Shut, Spawn, Stop, Work


def tasks(random: Random, seed: int, processes: int) -> Plan:
    """Tasks that wait for each other, stop each other, and take locks of their process."""
    usual = mixture("tasks", random, seed, processes, wide=0.3, lock=0.3, pools=(0, 1, 1, 2))
    names = list(usual.instances)[: random.randint(1, 2)]

    def body(own: int, count: int) -> tuple[Op, ...]:
        ops: list[Op] = []
        for _ in range(random.randint(1, 3)):
            other = random.choice([number for number in range(1, count + 1) if number != own])
            lock = Acquire(resource="lock0")
            call = random_call(random, len(usual.services), 1, wide=0.3, deadline=0.0, silent=0.1, token=0.0)
            if 1 < call.needs < len(call.targets):  # a report cannot express that a k-of-n wait also has a way out
                call = replace(call, needs=len(call.targets))
            kinds: tuple[Op, ...] = (Join(task=other), Join(task=other), lock, call, Work())
            stop = Stop(task=other, deep=random.random() < 0.5)
            ops.append(stop if random.random() < 0.25 else random.choice(kinds))
        return tuple(ops)

    roots = []
    for name in names:
        count = random.randint(2, 4)
        roots += [(name, body(own, count)) for own in range(1, count + 1)]
    return replace(usual, roots=tuple(roots), asks=6)


def jobs(random: Random, seed: int, processes: int) -> Plan:
    """Handlers and tasks that start and await others, and are cancelled with them; watchdogs that act late."""
    usual = mixture(
        "jobs", random, seed, processes, wide=0.3, silent=0.3, lock=0.3, heeding=0.7, cancel=0.3, pools=(0, 0, 1, 2)
    )
    return replace(_with_jobs(usual, random), asks=random.randint(4, 10), depth=2)


def _with_jobs(usual: Plan, random: Random) -> Plan:
    def nested(body: tuple[Op, ...], stops: int) -> tuple[Op, ...]:
        """``body`` with some operations moved to tasks that are awaited, and with tasks that stop another one after a while."""
        ops: list[Op] = []
        for op in body:
            if random.random() < 0.5:
                hog: tuple[Op, ...] = (Acquire(resource="lock0"), Acquire(resource="lock0"))
                inner = hog if random.random() < 0.3 else nested((op,), stops) if random.random() < 0.3 else (op,)
                ops += [Spawn(body=inner), Join(task=0, passes_on=True)]
            else:
                ops.append(op)
            if stops and random.random() < 0.15:
                last = Stop(task=random.randint(1, stops), deep=True)
                watch: tuple[Op, ...] = (*(Work() for _ in range(random.randint(0, 4))), last)
                ops.insert(random.randint(0, len(ops)), Spawn(body=watch))
        return tuple(ops)

    services = {
        name: replace(spec, methods={one: replace(method, body=nested(method.body, 0)) for one, method in spec.methods.items()})
        for name, spec in usual.services.items()
    }
    return replace(usual, services=services, roots=tuple((process, nested(body, 2)) for process, body in usual.roots))


def closers(random: Random, seed: int, processes: int) -> Plan:
    """Parties that at some point close a channel of their process, or stop its server."""
    usual = mixture("closers", random, seed, processes, wide=0.3, lock=0.3, heeding=0.5, silent=0.1, pools=(0, 1, 1, 2))
    services = sorted(usual.services)

    def closing(body: tuple[Op, ...]) -> tuple[Op, ...]:
        if random.random() < 0.5:
            return body
        last: Op = Close(service=random.choice(services)) if random.random() < 0.6 else Shut()
        at = random.randint(0, len(body))
        return (*body[:at], last, *body[at:])

    roots = tuple((process, closing(body)) for process, body in usual.roots)
    return replace(usual, roots=roots, asks=random.randint(4, 8), depth=2)
