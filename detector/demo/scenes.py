"""The scenes of ``stilltrue demo``: pools that call in a cycle, locks in opposite orders, a job, and a healthy shop."""

from __future__ import annotations

from detector.demo.scene import All, Call, First, Load, Locked, Scene, Service, Spread, Work

POOLS = Scene(
    services={
        "orders": Service(
            workers=2,
            methods={"Place": (Work(seconds=0.02), Call(method="stock.Reserve")), "Confirm": (Work(seconds=0.005),)},
        ),
        "stock": Service(workers=2, methods={"Reserve": (Work(seconds=0.01), Call(method="billing.Charge"))}),
        "billing": Service(workers=2, methods={"Charge": (Work(seconds=0.01), Call(method="orders.Confirm"))}),
    },
    loads={"load": Load(method="orders.Place", threads=1, pause=0.01)},
)
"""Bounded worker pools that call each other in a cycle (grpc/grpc #8603): fine under light load."""

LOCKS = Scene(
    services={
        "orders": Service(
            methods={
                "Place": (Locked(name="order", steps=(Work(seconds=0.02), Call(method="stock.Reserve"))),),
                "Note": (Locked(name="order", steps=(Work(seconds=0.001),)),),
            },
        ),
        "stock": Service(
            methods={
                "Reserve": (Locked(name="shelf", steps=(Work(seconds=0.001),)),),
                "Restock": (Locked(name="shelf", steps=(Work(seconds=0.02), Call(method="orders.Note"))),),
            },
        ),
    },
    loads={
        "shop": Load(method="orders.Place", threads=1, pause=0.05),
        "warehouse": Load(method="stock.Restock", threads=0, pause=0.05),
    },
)
"""Two services that take each other's locks in opposite orders, through calls: no process sees more than one lock."""

_MEMBERS = ("ada", "ben", "cy", "dot")

JOB = Scene(
    services={
        name: Service(
            methods={
                "Work": (Work(seconds=0.03), Spread(methods=tuple(f"{other}.Work" for other in _MEMBERS if other != name)))
            },
            workers=8,
        )
        for name in _MEMBERS
    },
    loads={"starter": Load(method="ada.Work", threads=0)},
)
"""A diffusing computation: each piece of work creates more for random others, until its strength is used up."""

HEALTHY = Scene(
    services={
        "orders": Service(
            workers=12,
            methods={
                "Place": (Work(seconds=0.002), Call(method="stock.Reserve"), All(methods=("price.Quote", "tax.Rate"))),
                "Confirm": (Work(seconds=0.002),),
                "Hurry": (Call(method="slow.Report", timeout=0.03),),
            },
        ),
        "stock": Service(
            workers=6,
            methods={"Reserve": (Locked(name="shelf", steps=(Work(seconds=0.001),), permits=2), Call(method="orders.Confirm"))},
        ),
        "price": Service(workers=0, methods={"Quote": (First(methods=("cache.Get", "mirror.Get")), Call(method="tax.Rate"))}),
        "tax": Service(workers=0, methods={"Rate": (All(methods=("cache.Get", "mirror.Get")), Work(seconds=0.001))}),
        "cache": Service(workers=2, methods={"Get": (Work(seconds=0.002),)}),
        "mirror": Service(workers=1, methods={"Get": (Work(seconds=0.003),)}),
        "slow": Service(workers=2, methods={"Report": (Work(seconds=0.05),)}),
    },
    loads={
        "web": Load(method="orders.Place", threads=4, pause=0.002),
        "app": Load(method="price.Quote", threads=3, pause=0.002),
        "hasty": Load(method="orders.Hurry", threads=2, pause=0.01),
        "rush": Load(method="cache.Get", threads=4, pause=0.001),
        "queue": Load(method="desk.Race", threads=2, pause=0.01),
        "street": Load(method="gateway.Pass", threads=3, pause=0.01),
    },
    programs={
        "kiosk": "detector.demo.idioms:Kiosk",
        "relay": "detector.demo.idioms:Relay",
        "gateway": "detector.demo.idioms:Gateway",
        "desk": "detector.demo.idioms:Desk",
        "clerk": "detector.demo.idioms:Clerk",
        "stall-1": "detector.demo.idioms:Stall",
        "stall-2": "detector.demo.idioms:Stall",
    },
    restarting=("stall-1", "stall-2"),
)
"""Call cycles, queues behind full pools, fan-outs, hedged calls, locks, deadlines: busy, and never deadlocked.

It also has ordinary programs, each with an idiom that looks like a deadlock for a moment (:mod:`detector.demo.idioms`).

Its cycle (orders -> stock -> orders) is safe: at most 4 `Place` and 2 `Hurry` are ever in orders' 12 workers, so there is
always one for `Confirm`; every other call graph is acyclic.
"""
