"""Random programs about one lock or semaphore: how it is acquired, how it is released later, and how a waiter waits for it.

The *taker* acquires it before any party waits, and either ends without releasing it, or stays until ``go``. The *helper* acts
after ``go``. The *waiter* waits without a timeout. Each program is compiled from its own text, so that no function of another
one releases its lock.

In a *shared* program it is a semaphore with two shares: an *insider* is in a block of it, and waits for the gate that the
waiter has.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

THING = {
    "lock": "threading.Lock()",
    "semaphore": "threading.Semaphore(1)",
    "bounded": "threading.BoundedSemaphore(1)",
    "reentrant": "threading.RLock()",
}
SHARED = {"semaphore": "threading.Semaphore(2)", "bounded": "threading.BoundedSemaphore(2)"}
_INSIDER = "gated.wait()\n    with {x}:\n        inside.set()\n        with gate:\n            pass"
NAMED = {
    "global": ("thing = {made}", "thing"),
    "attribute": ("class Owner:\n    pass\nowner = Owner()\nowner.thing = {made}", "owner.thing"),
    "item": ("things = {{'a': {made}}}", "things['a']"),
}
TAKES = {
    "leaves it by a return": "{x}.acquire()\n    if some:\n        return\n    {x}.release()",
    "leaves it by an exception": "{x}.acquire()\n    if some:\n        raise SystemExit\n    {x}.release()",
    "never gives it back": "{x}.acquire()",
    "is slow": "{x}.acquire()\n    go.wait()\n    {x}.release()",
    "is slow in a block": "with {x}:\n        go.wait()",
    "is slow in a finally": "{x}.acquire()\n    try:\n        go.wait()\n    finally:\n        {x}.release()",
    "is slow below": "def below():\n        go.wait()\n    {x}.acquire()\n    below()\n    {x}.release()",
    "keeps a generator": "one = locked()\n    next(one)\n    kept.append(one)",
    "keeps a context manager": "one = contextmanager(locked)()\n    one.__enter__()\n    kept.append(one)",
    "keeps an exit stack": "kept.append(stack := ExitStack())\n    stack.enter_context({x})",
    "is slow in a block of a function's": "with given():\n        go.wait()",
    "takes it if it can": "if {x}.acquire(timeout=5):\n        go.wait()\n        {x}.release()",
}
HELPS = {
    "nobody": "",
    "releases it": "go.wait()\n    {x}.release()",
    "releases what it is given": "go.wait()\n    unlock({x})",
    "calls what was kept": "go.wait()\n    later[0]()",
    "closes what was kept": "go.wait()\n    for one in kept:\n        getattr(one, 'close')()",
    "leaves what was kept": "go.wait()\n    for one in kept:\n        type(one).__exit__(one, None, None, None)",
    "takes and gives back": "go.wait()\n    {x}.acquire()\n    {x}.release()",
    "works on something else": "go.wait()\n    other.acquire()\n    other.release()",
}
WAITS = {
    "in a block": "with {x}:\n        pass",
    "bare": "{x}.acquire()\n    {x}.release()",
    "in a finally": "{x}.acquire()\n    try:\n        pass\n    finally:\n        {x}.release()",
}
_BEGIN = """
import threading
from contextlib import ExitStack, contextmanager
kept, later = [], []
other = threading.Lock()
"""
_BEGIN_SHARED = """
gate, gated, inside = threading.Lock(), threading.Event(), threading.Event()
"""


@dataclass(frozen=True, slots=True)
class Program:
    """A program: its text and description."""

    text: str
    what: str


def program(seed: int, *, shared: bool = False) -> Program:
    """The program for this seed."""
    chance = random.Random(seed)
    made = SHARED if shared else THING
    thing = chance.choices(list(made), (3, 3) if shared else (6, 3, 3, 2))[0]
    how = chance.choice(list(NAMED))
    begin, name = NAMED[how]
    takes, waits = chance.choice(list(TAKES)), chance.choice(list(WAITS))
    helps = "nobody" if chance.random() < 0.4 else chance.choice(list(HELPS))
    parts = [_BEGIN, *([_BEGIN_SHARED] if shared else ()), begin.format(made=made[thing])]
    if helps == "calls what was kept":
        parts.append(f"later.append({name}.release)")
    if "generator" in takes or "context manager" in takes:
        parts.append(_function("locked", f"with {name}:\n        yield"))
    if "function's" in takes:
        parts.append(_function("given", f"return {name}"))
    if helps == "releases what it is given":
        parts.append("def unlock(one):\n    one.release()")
    parts.append(_function("taker", TAKES[takes].format(x=name), "some"))
    body = WAITS[waits].format(x=name)
    if shared:
        body = "with gate:\n        gated.set()\n        inside.wait()\n        " + body.replace("\n", "\n    ")
        parts.append(_function("insider", _INSIDER.format(x=name)))
    parts.append(_function("waiter", body))
    if HELPS[helps]:
        parts.append(_function("helper", HELPS[helps].format(x=name)))
    return Program("\n".join(parts), f"{thing}, {how}: who took it {takes}; {helps}; waits {waits}")


def _function(name: str, body: str, arguments: str = "") -> str:
    return f"def {name}({arguments}):\n    {body}"
