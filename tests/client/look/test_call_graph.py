"""Which code a function may run: its own steps are followed before those of libraries."""

from __future__ import annotations

from typing import Any

from stilltrue.runtime.look.called_code.call_graph import reachable_code

FUNCTIONS = 1_000
LIBRARY = "\n".join(f"def f{at}():\n    f{2 * at + 1}(), f{2 * at + 2}()" for at in range(FUNCTIONS))
STEPS = 12
PROGRAM = "\n".join(f"def step{at}():\n    f{at}()\n    step{at + 1}()" for at in range(STEPS))


def test_a_functions_own_steps_are_followed_before_a_library_with_more_code_than_is_read() -> None:
    names: dict[str, Any] = {"__name__": "steps"}
    exec(compile(LIBRARY, "/app/lib/python3/site-packages/library.py", "exec"), names)
    exec(compile(PROGRAM, "/app/steps.py", "exec"), names)
    found = [code.co_name for code, _, _ in reachable_code(names["step0"].__code__, names, ())]
    assert found[:STEPS] == [f"step{at}" for at in range(STEPS)]
    assert 100 < len(found) < FUNCTIONS, "the walk of the library is bounded"
