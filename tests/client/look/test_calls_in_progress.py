"""The names that a frame may still use outside its current call: those loaded, repeated or called elsewhere count."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from stilltrue.runtime.look.code.names import Receiver, still_named_outside_call

Found = tuple[Receiver, frozenset[str]] | None

PROGRAMS: dict[str, tuple[str, Found]] = {
    "the last thing": ("run(app, port=int('1'))", (("run",), frozenset())),
    "of a module": ("tools.run(app)", (("tools", "run"), frozenset())),
    "and something after it": ("run(app)\nstop()", (("run",), frozenset({"stop"}))),
    "and its own name after it": ("run(app)\nrun(app)", (("run",), frozenset({"run", "app"}))),
    "its result is passed on": ("stop(run(app))", (("run",), frozenset({"stop"}))),
    "its name is loaded before": ("run(run(app), app)", (("run",), frozenset({"run", "app"}))),
    "another way": ("run(app) or stop()", (("run",), frozenset({"stop"}))),
    "in a loop": ("while again():\n    run(app)", None),
    "in a loop that begins with a block": (
        "while True:\n    try:\n        next(rounds)\n    except StopIteration:\n        break\n    run(app)",
        None,
    ),
    "in a loop over something": ("for one in [app]:\n    run(one)", None),
    "in a block": ("with lock:\n    run(app)", None),
    "what a call gives": ("made()(app)", None),
    "by a function that is not Python's": ("list(map(run, [app]))", (("list",), frozenset())),
}


@pytest.mark.parametrize("what", PROGRAMS)
def test_the_names_that_a_modules_code_may_still_use(what: str) -> None:
    text, expected = PROGRAMS[what]
    found: list[Found] = []

    class Lock:
        def __enter__(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...

    def run(*_: object, **__: object) -> Any:
        frame: FrameType = sys._getframe(1)
        found.append(still_named_outside_call(frame.f_code, frame.f_lasti))
        return None

    tools = type(sys)("tools")
    tools.run = run  # type: ignore[attr-defined]
    rounds = iter([True, False])
    names: dict[str, Callable[..., Any] | Any] = {"run": run, "tools": tools, "app": None, "lock": Lock(), "made": lambda: run}
    names |= {"rounds": rounds, "stop": lambda *_: None, "again": lambda: next(rounds)}
    exec(compile(text, "/program.py", "exec"), names)
    assert found[0] == expected
