"""Django's connections to databases: each has one thread, which alone may use it until it is shared."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from stilltrue.runtime import compat
from stilltrue.runtime.look.ways_out.reach import is_open

pytest.importorskip("django")

from django.db import connections
from django.db.backends.sqlite3.base import DatabaseWrapper


@contextmanager
def kept_by_a_thread() -> Iterator[tuple[int, Any]]:
    """A connection that Django keeps for another thread, which lives meanwhile."""
    there, go = threading.Event(), threading.Event()
    wrappers: list[Any] = []

    def keep() -> None:
        wrappers.append(DatabaseWrapper({"NAME": ":memory:"}, alias="kept"))
        connections._connections.kept = wrappers[0]
        there.set()
        go.wait(10)

    thread = threading.Thread(target=keep)
    thread.start()
    assert there.wait(10)
    assert thread.ident is not None
    try:
        yield thread.ident, wrappers[0]
    finally:
        go.set()
        thread.join()


def test_a_connection_has_one_thread_until_it_is_shared() -> None:
    with kept_by_a_thread() as (ident, wrapper):
        assert (ident, wrapper) in list(compat.connections_of_threads())
        assert not is_open(wrapper)
        wrapper.inc_thread_sharing()
        assert wrapper not in [one for _, one in compat.connections_of_threads()]
        assert compat.thread_of_connection(wrapper) is None
        assert is_open(wrapper)


def test_other_objects_have_no_thread() -> None:
    assert compat.thread_of_connection(threading.Event()) is None
