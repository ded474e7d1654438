"""Reading the stack of a frame that is about to end may fail, but never crashes the process."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest

from stilltrue.runtime.bytecode.instructions import exception_entries_of
from stilltrue.runtime.compat import value_stack

needs_reading = pytest.mark.skipif(
    not value_stack._can_read(),
    reason="the layout of this Python's frames is not known here",
)

_PROGRAM = """
    import contextlib, faulthandler, random, sys, threading, time

    faulthandler.enable()
    sys.setswitchinterval(1e-5)
    from stilltrue.runtime.waits.holders.with_blocks import blocks_of, exits_of, acquired_at

    class Block:
        def __enter__(self):
            return [1] * random.randrange(3)

        def __exit__(self, *_):
            return random.random() < 0.3

    class Dies(Block):  # the next reader comes when the block's object is about to go
        def __del__(self):
            _ = [bytearray(random.randrange(600)) for _ in range(5)]
            time.sleep(0.0003)

    class Static:
        @staticmethod
        def __enter__():
            time.sleep(0.0002)

        @staticmethod
        def __exit__(*_):
            return False

    @contextlib.contextmanager
    def made():
        blocks = [Dies(), Block()]
        with blocks[0]:
            yield blocks

    def raises():
        with made(), Dies():
            with Static(), Block():
                if random.random() < 0.7:
                    raise ValueError

    def nests():
        left = [Dies()]
        with Dies():
            try:
                with Static():
                    raises()
            finally:
                del left

    def deep(depth):
        with Block(), Block():
            return deep(depth - 1) if depth else nests()

    def generates():
        def numbers():
            with Block():
                for number in range(5):
                    with made():
                        yield [number]

        with Block():
            for _ in numbers():
                pass

    def work():
        while True:
            with contextlib.suppress(ValueError):
                random.choice((raises, nests, lambda: deep(5), generates))()

    for _ in range(6):
        threading.Thread(target=work, daemon=True).start()
    known = 0
    ends = time.monotonic() + 4
    while time.monotonic() < ends:
        for ident, frame in sys._current_frames().items():
            while frame is not None and ident != threading.get_ident():
                known += sum(repr(left.__self__) != "" for left in exits_of(frame) if left is not None)
                list(blocks_of(frame)), acquired_at(frame)
                frame = frame.f_back
    print(known > 0, flush=True)
    import os
    os._exit(0)
"""


@needs_reading
@pytest.mark.slow
def test_frames_that_end_while_they_are_read_do_no_harm() -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(_PROGRAM)], check=False, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr[-2000:]


class _Block:
    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


def _standing_in(block: _Block) -> Any:
    """A generator that is suspended in a block."""
    with block:
        yield


def _exit_of(standing: Any) -> Any:
    """The exit method on the stack of a suspended generator, as read from its frame."""
    frame = standing.gi_frame
    entries = exception_entries_of(frame.f_code)
    depth = max(entry.depth for entry in entries if entry.start <= frame.f_lasti < entry.end) - 1
    assert value_stack.stack_value_at(frame, frame.f_lasti - 2, depth) is None
    return value_stack.stack_value_at(frame, frame.f_lasti, depth)


@needs_reading
def test_without_access_to_its_memory_a_frame_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    left = _Block()
    standing, another = _standing_in(left), _standing_in(left)
    next(standing)
    next(another)
    assert _exit_of(standing).__self__ is left
    monkeypatch.setattr(value_stack, "_MEMORY", "/proc/self/none")
    assert _exit_of(another) is None


@needs_reading
def test_the_memory_is_opened_once_for_many_reads_and_closed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []
    open_file = os.open

    def counted(*arguments: Any) -> int:
        opened.append(open_file(*arguments))
        return opened[-1]

    monkeypatch.setattr(os, "open", counted)
    blocks = [_Block() for _ in range(20)]
    standing = [_standing_in(block) for block in blocks]
    for one in standing:
        next(one)
    with value_stack.memory_kept_open():
        assert not opened
        assert [_exit_of(one).__self__ for one in standing] == blocks
        assert [_exit_of(one).__self__ for one in standing] == blocks
    assert len(opened) == 1
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened[0])


@needs_reading
def test_a_forked_child_does_not_read_the_memory_of_its_parent() -> None:
    """The child replaces what the parent still has on its stack; a descriptor of the parent would show the parent's."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(_FORKING)], check=False, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr[-2000:]


_FORKING = """
    import os, sys
    from stilltrue.runtime.compat import value_stack
    from tests.client.runtime.test_value_stack import _Block, _exit_of, _standing_in

    first = _standing_in(_Block())
    next(first)
    with value_stack.memory_kept_open():
        assert _exit_of(first) is not None
        (memory,) = value_stack._opened.values()
        child = os.fork()
        if child == 0:
            try:
                os.fstat(memory)
            except OSError:
                block = _Block()
                second = _standing_in(block)
                next(second)
                os._exit(0 if _exit_of(second).__self__ is block else 2)
            os._exit(1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, flush=True)
    os._exit(0)
"""


class Unmapped:
    """Memory that has been returned: to read it would end the process."""

    @classmethod
    def from_address(cls, _: int) -> Unmapped:
        return cls()

    def __getattr__(self, name: str) -> int:
        pytest.fail(f"{name} was read")


@needs_reading
def test_an_object_that_is_gone_by_the_time_of_the_check_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check lets other threads run, so the frame may move on, and the memory of the object may be returned."""

    def stands() -> Iterator[None]:
        yield
        yield

    standing: Any = stands()
    next(standing)
    frame = standing.gi_frame
    at = frame.f_lasti

    def moves_on(_: int) -> bool:
        next(standing)
        return True

    monkeypatch.setattr(value_stack, "_is_like_an_object", moves_on)
    monkeypatch.setattr(value_stack, "_Object", Unmapped)
    assert value_stack._read(frame, at, 0) is None


def _own_frame(found: list[bool | None], *_: object, **__: object) -> None:
    found.append(value_stack.is_called_inline(sys._getframe()))


@needs_reading
def test_it_is_known_whether_a_compiled_function_has_called_a_frame() -> None:
    class Calls:
        def __init__(self) -> None:
            _own_frame(found)

        def __exit__(self, *_: object) -> None:
            found.append(value_stack.is_called_inline(sys._getframe()))

        __enter__ = bound = __exit__

    found: list[bool | None] = []
    one = Calls()
    found.clear()
    for _ in range(20):  # once the interpreter has specialized the code as well
        _own_frame(found)
        list(map(_own_frame, [found]))
        with one:
            pass
        one.bound(*[1])
    assert found == [True, False, False, False, False] * 20
    assert value_stack.is_called_inline(sys._getframe()) in (True, False, None)
