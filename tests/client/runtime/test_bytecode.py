"""Bytecode reads alike on every Python: who handles an exception, what a call is made of, and how code is named."""

from __future__ import annotations

import asyncio
import functools
import importlib._bootstrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

import pytest

from stilltrue.runtime import compat
from stilltrue.runtime.bytecode.instructions import exception_entries_of, instructions
from stilltrue.runtime.bytecode.qualified_names import qualname_of
from stilltrue.runtime.look.code.conditions import condition_at
from stilltrue.runtime.look.code.instructions_ahead import ahead_of, names_at
from stilltrue.runtime.look.code.names import mentioned_by
from stilltrue.runtime.waits.holders.with_blocks import blocks_at

inside: Any = None
other: Any = None
call: Any = None


def offset_of(code: CodeType, name: str) -> int:
    """The offset of the call of this global."""
    every = list(instructions(code))
    loads = next(index for index, one in enumerate(every) if one.argval == name)
    return next(one.offset for one in every[loads:] if one.opname in ("CALL", "CALL_KW"))


def raises_in_a_handler() -> None:
    try:
        try:
            raise KeyError  # noqa: TRY301 - what is read
        except KeyError as error:
            inside(error)
            raise
    except ValueError:
        call.close()


def raises_at_the_end_of_a_try() -> None:
    try:
        try:
            raise KeyError(inside())
        except TypeError:
            other()
    except KeyError:
        call.close()


def raises_in_a_finally() -> None:
    try:
        try:
            other()
        finally:
            inside()
    except OSError:
        call.close()


def raises_in_a_block() -> None:
    try:
        with other:
            inside()
    except OSError:
        call.close()


def returns_from_a_block() -> Any:
    try:
        with other:
            return inside()
    except (OSError, ValueError):
        call.close()


def raises_behind_a_jump() -> None:
    for one in other:
        try:
            if one:
                continue
            inside()
        except OSError:
            break
    call.close()


async def raises_in_a_round() -> None:
    try:
        async for _ in other:
            inside()
    except OSError:
        call.close()


@pytest.mark.parametrize(
    "function",
    [
        raises_in_a_handler,
        raises_at_the_end_of_a_try,
        raises_in_a_finally,
        raises_in_a_block,
        returns_from_a_block,
        raises_behind_a_jump,
        raises_in_a_round,
    ],
)
def test_the_handlers_around_a_call_are_ahead(function: Callable[[], object]) -> None:
    code = function.__code__
    ahead = ahead_of(code, offset_of(code, "inside"))
    assert ahead.known
    assert ("call",) in ahead.closed


def after_the_handler() -> None:
    try:
        call.close()
    except OSError:
        other()
    inside()


def test_what_lies_behind_is_not_ahead() -> None:
    code = after_the_handler.__code__
    ahead = ahead_of(code, offset_of(code, "inside"))
    assert ahead.known
    assert not ahead.closed
    assert "other" not in ahead.variables


def calls(first: Any, second: Any) -> None:
    other(first, inside(second.name, key=call.id) if second else 1, *first)


def test_a_call_is_made_of_its_callee_and_arguments() -> None:
    code = calls.__code__
    assert names_at(code, offset_of(code, "inside")) == {"inside", "second", "name", "call", "id"}


async def awaits() -> None:
    await call.wait(other)
    inside()


def test_a_suspended_await_is_made_of_what_it_awaits() -> None:
    class Call:
        async def wait(self, _: Any) -> None:
            await asyncio.Event().wait()

    async def main() -> frozenset[str]:
        coroutine: Any = awaits()
        task = asyncio.ensure_future(coroutine)
        await asyncio.sleep(0)
        frame: FrameType = coroutine.cr_frame
        task.cancel()
        found: frozenset[str] = names_at(frame.f_code, frame.f_lasti)
        return found

    globals()["call"] = Call()
    assert asyncio.run(main()) == {"call", "wait", "other"}


def passes_on() -> None:
    inside(other, len(call))


def test_only_globals_that_are_called_are_mentioned() -> None:
    assert mentioned_by(list(instructions(passes_on.__code__))) == {"inside", "len"}


def polls(stop: Any) -> None:
    while not stop.is_set(1):
        inside()


def test_the_condition_of_a_loop_is_read_with_its_receiver() -> None:
    every = list(instructions(polls.__code__))
    jumps = (index for index, one in enumerate(every) if one.opname.startswith("POP_JUMP"))
    conditions = [condition_at(every, index, index + 1) for index in jumps]
    assert conditions
    assert {(one.chains, one.method) for one in conditions if one is not None} == {((("stop",),), "is_set")}


def nested(locks: Any) -> None:
    with locks["a"], locks.b as _:
        inside()


def test_the_blocks_around_a_call_are_known_by_expression() -> None:
    found = blocks_at(nested.__code__, offset_of(nested.__code__, "inside"))
    assert [one.expression[1:] for one in found] == [(("constant", "a"), ("item", None)), (("attribute", "b"),)]


class Named:
    """Functions of all kinds."""

    def method(self) -> Callable[[], None]:
        def within() -> None:
            pass

        return within

    @staticmethod
    def plain() -> None:
        pass

    @classmethod
    def of_class(cls) -> None:
        pass

    @property
    def value(self) -> int:
        return 1

    @functools.lru_cache(maxsize=1)  # noqa: B019 - it is never called
    def hidden(self) -> None:
        """No function of the module's is found behind the cache but by its ``__wrapped__``."""

    @contextmanager
    def wrapped(self) -> Iterator[None]:
        yield


def test_compiled_code_which_has_no_instructions_is_read_as_code_without_blocks() -> None:
    compiled = (lambda: None).__code__.replace(co_code=b"")
    assert not exception_entries_of(compiled)
    assert not list(instructions(compiled))
    assert not blocks_at(compiled, -1)


def test_code_has_its_qualified_name() -> None:
    own: dict[str, Any] = dict(vars(Named))
    assert qualname_of(own["method"].__code__) == "Named.method"
    assert qualname_of(own["method"](None).__code__) == "Named.method.<locals>.within"
    assert qualname_of(own["plain"].__func__.__code__) == "Named.plain"
    assert qualname_of(own["of_class"].__func__.__code__) == "Named.of_class"
    assert qualname_of(own["value"].fget.__code__) == "Named.value"
    assert qualname_of(own["hidden"].__wrapped__.__code__) in ("Named.hidden", "hidden")
    assert qualname_of(own["wrapped"].__wrapped__.__code__) == "Named.wrapped"
    frozen: Any = importlib._bootstrap
    assert qualname_of(frozen._ModuleLock.acquire.__code__) == "_ModuleLock.acquire"


async def test_a_suspended_coroutine_holds_its_variables_and_blocks() -> None:
    lock, thing = asyncio.Lock(), object()

    async def holds(kept: object) -> None:
        async with lock:
            await asyncio.Event().wait()
            print(kept)

    task = asyncio.ensure_future(coroutine := holds(thing))
    await asyncio.sleep(0)
    held = compat.held_by_coroutine(coroutine)
    assert any(one is thing for one in held)
    assert any(getattr(one, "__self__", None) is lock for one in held)
    assert not any(one is globals() for one in held)
    task.cancel()


def _reads_two(pending: Any, own: Any, other: Any) -> None:
    pending.wait()
    own[other].set()


def _sets_one_and_reads_it(pending: Any) -> None:
    pending.wait()
    found = pending.found
    found.set()


@pytest.mark.parametrize(
    ("function", "read"), [(_reads_two, {"own", "other"}), (_sets_one_and_reads_it, {"pending", "found"})], ids=["two", "one"]
)
def test_the_variables_that_are_still_read_are_named_also_where_one_instruction_reads_two(
    function: Any, read: set[str]
) -> None:
    calls = [one.offset for one in instructions(function.__code__) if one.opname == "CALL"]
    assert ahead_of(function.__code__, calls[0]).variables == read
