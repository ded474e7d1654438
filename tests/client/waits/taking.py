"""Ways to acquire and release a lock: those in which a frame surely holds it, and similar ones in which it may not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from tests.client.waits.conftest import PATIENCE_SECONDS

Taking = Callable[[Any, Callable[[], object]], object]
HELD: dict[str, Taking] = {}
NOT_SURELY_HELD: dict[str, Taking] = {}


def held(function: Taking) -> Taking:
    """A way to hold a lock while other code runs."""
    HELD[function.__name__] = function
    return function


def not_surely_held(function: Taking) -> Taking:
    """A similar way, whose code does not show whether the lock is held."""
    NOT_SURELY_HELD[function.__name__] = function
    return function


@held
def by_finally(lock: Any, inside: Callable[[], object]) -> object:
    lock.acquire()
    try:
        return inside()
    finally:
        lock.release()


@held
def told_to_wait(lock: Any, inside: Callable[[], object]) -> object:
    lock.acquire(True)
    try:
        return inside()
    finally:
        lock.release()


@held
def told_to_wait_by_name(lock: Any, inside: Callable[[], object]) -> object:
    lock.acquire(blocking=True)
    try:
        return inside()
    finally:
        lock.release()


@held
def with_something_between(lock: Any, inside: Callable[[], object]) -> object:
    lock.acquire()
    taken = [lock]
    taken.append(lock)
    try:
        return inside()
    finally:
        taken.clear()
        lock.release()


@held
def behind_a_condition_and_in_a_loop(lock: Any, inside: Callable[[], object]) -> None:
    for _ in range(1):
        if lock is not None:
            lock.acquire()
            try:
                for _ in range(1):
                    inside()
            except ValueError:
                print("a round without")
            finally:
                lock.release()


@held
def before_the_try(lock: Any, inside: Callable[[], object]) -> None:
    lock.acquire()
    inside()
    try:
        inside()
    finally:
        lock.release()


@held
def beside_another(lock: Any, inside: Callable[[], object]) -> None:
    second = threading.Lock()
    second.acquire()
    try:
        lock.acquire()
        try:
            inside()
        finally:
            lock.release()
    finally:
        second.release()


@held
def with_a_function_that_does_so(lock: Any, inside: Callable[[], object]) -> None:
    def inner() -> None:
        other = threading.Lock()
        other.acquire()
        try:
            inside()
        finally:
            other.release()

    lock.acquire()
    try:
        inner()
    finally:
        lock.release()


def if_it_is_soon_free(lock: Any, inside: Callable[[], object]) -> None:
    """Holds it, too; its code is read as a whole, not as a bracket."""
    for _ in range(1):
        if not lock.acquire(timeout=PATIENCE_SECONDS):
            continue
        try:
            inside()
        finally:
            lock.release()


def once_it_is_free(lock: Any, inside: Callable[[], object]) -> None:
    """The same."""
    while not lock.acquire(timeout=PATIENCE_SECONDS):
        print("still waiting")
    try:
        inside()
    finally:
        lock.release()


def if_its_variable_says_so(lock: Any, inside: Callable[[], object]) -> None:
    """The same."""
    taken = lock.acquire(timeout=PATIENCE_SECONDS)
    try:
        if taken:
            inside()
    finally:
        if taken:
            lock.release()


TRYING: list[Taking] = [if_it_is_soon_free, once_it_is_free, if_its_variable_says_so]


@not_surely_held
def with_a_timeout(lock: Any, inside: Callable[[], object]) -> None:
    lock.acquire(timeout=PATIENCE_SECONDS)
    try:
        inside()
    finally:
        lock.release()


@not_surely_held
def without_blocking(lock: Any, inside: Callable[[], object]) -> None:
    lock.acquire(blocking=False)
    try:
        inside()
    finally:
        lock.release()


@not_surely_held
def told_not_to_wait(lock: Any, inside: Callable[[], object]) -> None:
    lock.acquire(False)
    try:
        inside()
    finally:
        lock.release()


@not_surely_held
def told_how_long_to_wait(lock: Any, inside: Callable[[], object]) -> None:
    lock.acquire(True, PATIENCE_SECONDS)
    try:
        inside()
    finally:
        lock.release()


@not_surely_held
def told_whether_to_wait(lock: Any, inside: Callable[[], object], wait: bool = True) -> None:
    lock.acquire(wait)
    try:
        inside()
    finally:
        lock.release()


@not_surely_held
def on_a_condition(lock: Any, inside: Callable[[], object], taken: bool = True) -> None:
    if taken:
        lock.acquire()
    try:
        inside()
    finally:
        lock.release()


@not_surely_held
def by_an_expression(lock: Any, inside: Callable[[], object], taken: bool = True) -> None:
    lock.acquire() if taken else None
    try:
        inside()
    finally:
        lock.release()


@not_surely_held
def given_back_on_a_condition(lock: Any, inside: Callable[[], object], taken: bool = True) -> None:
    lock.acquire()
    try:
        inside()
    finally:
        if taken:
            lock.release()


@not_surely_held
def given_back_when_it_fails(lock: Any, inside: Callable[[], object]) -> None:
    lock.acquire()
    try:
        inside()
    except:
        lock.release()
        raise


@not_surely_held
def under_another_name(lock: Any, inside: Callable[[], object]) -> None:
    other = lock
    lock.acquire()
    try:
        inside()
    finally:
        other.release()


@not_surely_held
def given_back_and_taken_again(lock: Any, inside: Callable[[], object]) -> None:
    lock.acquire()
    try:
        lock.release()
        lock.acquire()
        inside()
    finally:
        lock.release()


@not_surely_held
def handed_over(lock: Any, inside: Callable[[], object], to: Iterable[Any] = ()) -> None:
    lock.acquire()
    try:
        for one in to:
            one(lock.release)
        inside()
    finally:
        lock.release()


@not_surely_held
def handed_over_to_a_function(lock: Any, inside: Callable[[], object], to: Iterable[Any] = ()) -> None:
    lock.acquire()
    try:
        for one in to:
            one(lambda: lock.release())  # noqa: PLW0108
        inside()
    finally:
        lock.release()


@not_surely_held
def looked_up(lock: Any, inside: Callable[[], object], to: Iterable[Any] = ()) -> None:
    lock.acquire()
    try:
        for one in to:
            one(getattr(lock, "release"))  # noqa: B009
        inside()
    finally:
        lock.release()


@not_surely_held
def of_the_last_of_several(lock: Any, inside: Callable[[], object], others: Iterable[Any] = ()) -> None:
    for one in (*others, lock):
        one.acquire()
    try:
        inside()
    finally:
        lock.release()


@not_surely_held
def once_for_several_rounds(lock: Any, inside: Callable[[], object]) -> None:
    lock.acquire()
    for _ in range(1):
        try:
            inside()
        finally:
            lock.release()


@not_surely_held
def behind_a_try_of_its_own(lock: Any, inside: Callable[[], object]) -> None:
    try:
        lock.acquire()
    except RuntimeError:
        print("go on without")
    try:
        inside()
    finally:
        lock.release()
