"""The height of a frame's stack, from its code: against the compiler's own bound, and against stacks that can be read."""

from __future__ import annotations

import ast
import dis
import queue
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from stilltrue.runtime.bytecode.stack_heights import heights_of, kept_in_call
from stilltrue.runtime.compat import value_stack

needs_reading = pytest.mark.skipif(not value_stack._can_read(), reason="the layout of this Python's frames is not known here")
_LIBRARY = Path(ast.__file__).parent
_MODULES = ("argparse", "ast", "asyncio/base_events", "concurrent/futures/thread", "dataclasses", "logging/__init__", "typing")


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """A code object, and those within it."""
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from codes_in(one)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the bytecode is translated")
@pytest.mark.parametrize("module", _MODULES)
def test_all_code_is_understood_and_no_stack_is_higher_than_the_compiler_says(module: str) -> None:
    path = _LIBRARY / f"{module}.py"
    for code in codes_in(compile(path.read_text(), str(path), "exec")):
        heights = heights_of(code)
        assert heights is not None, code.co_qualname
        assert max(heights.values()) <= code.co_stacksize, code.co_qualname


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="before, bytecode is translated; later, the two paths do not meet")
def test_code_in_which_two_paths_disagree_is_not_understood() -> None:
    def function(one: object) -> object:
        return len([one if one else None])

    code = function.__code__
    none = next(one for one in dis.get_instructions(code) if one.opname == "LOAD_CONST" and one.argval is None)
    changed = bytearray(code.co_code)
    changed[none.offset : none.offset + 2] = bytes((dis.opmap["NOP"], 0))
    assert heights_of(code) is not None
    assert heights_of(code.replace(co_code=bytes(changed))) is None


def _frames(called: Any, kept: list[int]) -> Any:
    """Append the frames' numbers of references to ``called`` that are on the stack of the caller's frame."""
    frame: FrameType | None = sys._getframe(1)
    assert frame is not None
    slots = kept_in_call(frame.f_code, frame.f_lasti, compiled=False)
    read = value_stack.frame_references(frame, slots or 0)
    assert read is not None
    kept.append(-1 if slots is None else sum(1 for name, one in read[1] if not name and one == id(called)))


def _pass(*_: Any, **__: Any) -> None:
    """Take anything."""


@needs_reading
def test_references_on_the_stack_of_a_frame_in_a_call_are_all_counted() -> None:
    thing, found = object(), list[int]()
    _frames(thing, found)
    _pass(thing, _frames(thing, found))
    _pass(thing, (thing, [thing], _frames(thing, found)))
    for _ in (thing,):
        _pass(thing, a=thing, b=_frames(thing, found))
    _pass(*[_frames(one, found) for one in (thing,)])
    assert found in ([0, 1, 2, 2, 0], [0, 1, 3, 2, 0])


@needs_reading
def test_a_call_of_compiled_code_keeps_its_function_and_arguments() -> None:
    code = queue.Queue.get.__code__
    calls = [one for one in dis.get_instructions(code) if one.opname in ("CALL", "CALL_KW")]
    heights = heights_of(code)
    assert heights is not None
    for one in calls:
        compiled, inlined = (kept_in_call(code, one.offset, compiled=known) for known in (True, False))
        assert compiled is not None
        assert inlined is not None
        assert compiled - inlined == (one.arg or 0) + 2 + (one.opname == "CALL_KW")
