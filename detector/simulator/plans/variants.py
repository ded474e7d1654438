"""Variants of other worlds for more predicates: counted and lost messages, scopes."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from detector.simulator.plans.plan import Method, Plan, Service

LOSS_PROBABILITY = 0.15
"""Probability that a method loses its requests."""


def counted(plan: Plan, random: Random) -> Plan:
    """``plan`` with messages counted at both ends, some of which are lost at the receiver; it comes to rest quickly."""

    def lossy(method: Method) -> Method:
        return replace(method, loses=random.random() < LOSS_PROBABILITY)

    services = {
        name: Service(methods={one: lossy(method) for one, method in service.methods.items()}, pools=service.pools)
        for name, service in plan.services.items()
    }
    return replace(plan, name="counts", services=services, counted=True, depth=2, asks=random.randint(4, 8))


def scoped(plan: Plan, random: Random) -> Plan:
    """``plan`` with the instances of one of its services as a scope."""
    return replace(plan, name="scopes", scope=random.choice(sorted(plan.services)), asks=random.randint(4, 8))
