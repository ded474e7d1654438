"""The scenes of the live tests: each kind of deadlock, and a near miss of it."""

from __future__ import annotations

from dataclasses import replace

from detector.demo.scene import All, Call, First, Load, Locked, Scene, Service, Step, Work
from detector.demo.scenes import LOCKS, POOLS

POOLS_LIGHT = Scene(
    services={**POOLS.services, "orders": replace(POOLS.services["orders"], workers=3)},
    loads={"load": Load(method="orders.Place", threads=2, pause=0.001)},
)
"""One free worker: two callers, three workers, so there is always one for `Confirm`."""

SELF = Scene(
    services={"echo": Service(workers=1, methods={"Outer": (Call(method="echo.Inner"),), "Inner": (Work(seconds=0.001),)})},
    loads={"load": Load(method="echo.Outer", threads=0, pause=0.001)},
)
SELF_LIGHT = Scene(services={"echo": replace(SELF.services["echo"], workers=2)}, loads=SELF.loads)


def _more_permits(step: Step) -> Step:
    return replace(step, permits=8) if isinstance(step, Locked) else step


LOCKS_LIGHT = Scene(
    services={
        name: replace(service, workers=8, methods={m: tuple(map(_more_permits, s)) for m, s in service.methods.items()})
        for name, service in LOCKS.services.items()
    },
    loads={name: replace(load, threads=2) for name, load in LOCKS.loads.items()},
)
"""More holders may hold at once than there are callers."""

_STUCK = {
    "back": Service(workers=1, methods={"Get": (Call(method="mid.Pass"),), "Put": (Work(seconds=0.001),)}),
    "mid": Service(workers=1, methods={"Pass": (Call(method="back.Put"),)}),
    "fast": Service(workers=2, methods={"Get": (Work(seconds=0.001),)}),
}
"""`back.Get` calls `mid.Pass`, which calls back: behind the only worker, which is busy with `Get`."""

FAN_OUT = Scene(
    services={"front": Service(workers=2, methods={"Place": (All(methods=("fast.Get", "back.Get")),)}), **_STUCK},
    loads={"load": Load(method="front.Place", threads=0)},
)
FAN_OUT_AIO = Scene(services={**FAN_OUT.services, "front": replace(FAN_OUT.services["front"], workers=0)}, loads=FAN_OUT.loads)
FIRST_OF = Scene(
    services={**_STUCK, "front": Service(workers=0, methods={"Place": (First(methods=("slow.Get", "back.Get")),)})}
    | {"slow": Service(workers=2, methods={"Get": (Work(seconds=30),)})},
    loads={"load": Load(method="front.Place", threads=0)},
)
"""One branch is stuck, the other is merely slow, and either will do."""

DEADLINE = Scene(
    services={
        **POOLS.services,
        "billing": Service(workers=2, methods={"Charge": (Work(seconds=0.01), Call(method="orders.Confirm", timeout=60))}),
    },
    loads=POOLS.loads,
)
"""The cycle of pools, but for a deadline that will break it in a minute."""
