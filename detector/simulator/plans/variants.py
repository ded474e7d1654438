"""Variants of other worlds for more predicates: counted and lost messages, groups of processes."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from detector.simulator.plans.plan import Method, Plan, Service

LOSES = 0.15
"""How likely a method is to lose its requests."""


def counted(plan: Plan, random: Random) -> Plan:
    """The same, with messages that are counted at both ends, some of which their receiver loses: quick to come to rest."""

    def lossy(method: Method) -> Method:
        return replace(method, loses=random.random() < LOSES)

    services = {
        name: Service(methods={one: lossy(method) for one, method in service.methods.items()}, pools=service.pools)
        for name, service in plan.services.items()
    }
    return replace(plan, name="counts", services=services, counted=True, depth=2, asks=random.randint(4, 8))


def scoped(plan: Plan, random: Random) -> Plan:
    """The same, with the instances of one of its services as a group of their own."""
    return replace(plan, name="scopes", scope=random.choice(sorted(plan.services)), asks=random.randint(4, 8))
