"""What a function releases without having acquired it, and where it may hold what it has acquired."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from stilltrue.runtime.bytecode.instructions import instructions
from stilltrue.runtime.look.code.names import ATTRIBUTES
from stilltrue.runtime.waits.orphaned_locks.balance import codes_ahead, uses_of

lock = threading.Lock()
MEANT = (("name", "lock"),)


def straight() -> None:
    lock.acquire()
    print()
    lock.release()


def told_to_wait() -> None:
    lock.acquire(True)
    lock.release()
    lock.acquire(blocking=True)
    lock.release()


def told_not_to_wait() -> None:
    lock.acquire(False)
    lock.release()


def on_one_path(some: Any) -> None:
    lock.acquire()
    if some:
        raise ValueError
    lock.release()


def in_a_loop(some: Any) -> None:
    while some():
        lock.acquire()
        try:
            some()
        finally:
            lock.release()


async def awaited(lock: Any) -> None:
    await lock.acquire()
    lock.release()


def elsewhere() -> None:
    lock.release()


def only_sometimes(some: Any) -> None:
    if some:
        lock.acquire()
    lock.release()


def twice(some: Any) -> None:
    lock.acquire()
    lock.release()
    if some:
        lock.release()


def in_its_own_block() -> None:
    with lock:
        lock.release()


def handed_on(some: Any) -> None:
    lock.acquire()
    some(lock.release)


def with_a_time_limit() -> None:
    if lock.acquire(timeout=3):
        lock.release()


def with_a_time_limit_or_not_this_time(some: Any) -> None:
    while some():
        if not lock.acquire(timeout=-1 + 3, blocking=True):
            continue
        try:
            some()
        finally:
            lock.release()


def until_it_has_it(some: Any) -> None:
    while not lock.acquire(timeout=0.5):
        some()
    try:
        some()
    finally:
        lock.release()


def if_it_is_free(some: Any) -> int:
    if not lock.acquire(False):
        return 0
    try:
        return int(some())
    finally:
        lock.release()


def with_its_result_in_a_variable(some: Any) -> None:
    taken = lock.acquire(timeout=3)
    if not taken:
        raise TimeoutError
    some()
    lock.release()


def with_a_test_in_finally(some: Any) -> None:
    taken = False
    try:
        taken = lock.acquire(blocking=False)
        if taken:
            some()
    finally:
        if taken:
            lock.release()


def with_an_assignment_expression(some: Any) -> None:
    if taken := lock.acquire(blocking=False):
        some(taken)
        lock.release()


async def with_a_limit_of_asyncio(some: Any) -> None:
    try:
        await asyncio.wait_for(lock.acquire(), 3)  # type: ignore[arg-type]
    except asyncio.TimeoutError:
        return
    try:
        await some()
    finally:
        lock.release()


def or_it_ends_its_call(context: grpc.ServicerContext, some: Any) -> None:
    if not lock.acquire(timeout=3):
        context.abort(grpc.StatusCode.ABORTED, f"busy: {some}")
    try:
        some()
    finally:
        lock.release()


def or_it_ends_its_call_within_the_block(context: Any, some: Any) -> int:
    taken = False
    try:
        taken = lock.acquire(blocking=False)
        if not taken:
            context.abort(code=grpc.StatusCode.ABORTED, details="busy")
        return int(some())
    finally:
        if taken:
            lock.release()


async def or_it_ends_its_call_on_a_loop(context: Any, some: Any) -> None:
    try:
        await asyncio.wait_for(lock.acquire(), 3)  # type: ignore[arg-type]
    except asyncio.TimeoutError:
        await context.abort_with_status(some)
    try:
        await some()
    finally:
        lock.release()


def handed_on_by_a_branch(some: Any) -> Any:
    handed_on = False
    if some.old:
        if not lock.acquire(False):
            return some.old
    else:
        lock.acquire()
    try:
        if some.runner:
            some.runner(lock)
            handed_on = True
            return some.old
        return some.make()
    finally:
        if not handed_on:
            lock.release()


def or_it_aborts_something_else(some: Any) -> None:
    if not lock.acquire(timeout=3):
        some.abort("this round")
    lock.release()


def whether_it_has_it_or_not(some: Any) -> None:
    lock.acquire(timeout=3)
    some()
    lock.release()


def if_it_has_it_not(some: Any) -> None:
    if not lock.acquire(timeout=3):
        lock.release()
    some()


def by_a_variable_that_was_set_again(some: Any) -> None:
    taken = lock.acquire(timeout=3)
    taken = some(taken)
    if taken:
        lock.release()


def twice_by_the_same_variable() -> None:
    taken = lock.acquire(timeout=3)
    if taken:
        lock.release()
    if taken:
        lock.release()


def by_one_of_two_variables(some: Any) -> None:
    one = lock.acquire(timeout=3)
    other = some() and lock.acquire(timeout=3)
    if one or other:
        lock.release()


async def never_waited_for(some: Any) -> None:
    some(lock.acquire(), 3)
    lock.release()


def another_meanwhile(lock: Any, other: Any) -> None:
    lock.acquire()
    lock = other
    lock.release()


OWN = [
    straight,
    told_to_wait,
    on_one_path,
    in_a_loop,
    awaited,
    with_a_time_limit,
    with_a_time_limit_or_not_this_time,
    until_it_has_it,
    if_it_is_free,
    with_its_result_in_a_variable,
    with_a_test_in_finally,
    with_an_assignment_expression,
    with_a_limit_of_asyncio,
    or_it_ends_its_call,
    or_it_ends_its_call_within_the_block,
    or_it_ends_its_call_on_a_loop,
    handed_on_by_a_branch,
]


@pytest.mark.parametrize("function", OWN)
def test_a_lock_acquired_on_every_path_is_the_functions_own(function: Callable[..., Any]) -> None:
    uses = uses_of(function.__code__)
    assert (set(uses.own), set(uses.unowned)) == ({MEANT}, set())
    assert uses.held is not None
    assert uses.held[MEANT]


OTHERS = [
    elsewhere,
    told_not_to_wait,
    only_sometimes,
    twice,
    in_its_own_block,
    handed_on,
    another_meanwhile,
    whether_it_has_it_or_not,
    if_it_has_it_not,
    by_a_variable_that_was_set_again,
    twice_by_the_same_variable,
    by_one_of_two_variables,
    never_waited_for,
    or_it_aborts_something_else,
]


@pytest.mark.parametrize("function", OTHERS)
def test_a_release_without_an_acquire_on_some_path_is_anothers(function: Callable[..., Any]) -> None:
    uses = uses_of(function.__code__)
    assert (set(uses.own), set(uses.unowned)) == (set(), {MEANT})


def _sure_in(function: Callable[..., Any], name: str) -> bool:
    """Whether a function surely holds the lock where it calls this method."""
    sure = (uses_of(function.__code__).sure or {}).get(MEANT, frozenset())
    every = list(instructions(function.__code__))
    named = next(index for index, one in enumerate(every) if one.argval == name and one.opname in ATTRIBUTES)
    return next(one.offset for one in every[named:] if one.opname == "CALL") in sure


def test_a_lock_is_held_for_sure_where_only_another_branch_hands_it_on() -> None:
    """As in dogpile: ``make()`` is called with the lock, and each path from there releases it."""
    assert _sure_in(handed_on_by_a_branch, "make")
    assert not _sure_in(handed_on_by_a_branch, "runner")


def left_behind_by_a_flag(some: Any) -> None:
    keeps = False
    lock.acquire()
    if some.first():
        keeps = True
    some.make()
    if not keeps:
        lock.release()


def set_to_anything(some: Any) -> None:
    keeps = some.first()
    lock.acquire()
    some.make()
    if not keeps:
        lock.release()


@pytest.mark.parametrize("function", [left_behind_by_a_flag, set_to_anything])
def test_it_is_not_where_a_path_from_there_leaves_it_behind(function: Callable[..., Any]) -> None:
    assert not _sure_in(function, "make")


def test_a_function_defined_behind_the_position_is_not_made_again() -> None:
    module = compile("def first(): pass\nwait()\ndef second(): pass\n", "<module>", "exec")
    names = [one.co_name for one in codes_ahead(module, len(module.co_code) // 2)]
    assert names == ["second"]
    loop = compile("while wait():\n  def first(): pass\n  wait()\n", "<module>", "exec")
    assert [one.co_name for one in codes_ahead(loop, len(loop.co_code) - 2)] in (["first"], [])
    assert [one.co_name for one in codes_ahead(loop, 0)] == ["first"]
