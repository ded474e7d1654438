"""Code that closes only what it has opened or made itself ends nobody's wait; what it may have from others, it may close."""

from __future__ import annotations

import contextlib
import socket
import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

from stilltrue.runtime.look.ways_out.kinds.closing.with_blocks import closes_others


class Client:
    """The same object each time."""

    _one: Client | None = None

    def __new__(cls) -> Client:
        cls._one = cls._one or super().__new__(cls)
        return cls._one

    def close(self) -> None:
        """Nothing."""


def writes_a_file(text: str) -> None:
    file = open("/dev/null", "w")  # noqa: SIM115, PTH123
    file.write(text)
    file.close()


def asks_by_a_socket(text: str) -> None:
    connection = socket.create_connection(("localhost", 1), timeout=3)
    try:
        connection.sendall(text.encode())
    finally:
        connection.close()


def opens_one_if_need_be(needed: bool) -> None:
    connection = None
    try:
        if needed:
            connection = socket.create_connection(("localhost", 1))
    finally:
        if connection is not None:
            connection.close()


def closes_the_only_object_of_a_class() -> None:
    client = Client()
    client.close()


def has_a_cursor(connection: sqlite3.Connection) -> None:
    cursor = connection.cursor()
    cursor.execute("SELECT 1")
    cursor.close()


def closes_what_it_has_opened_before(self: Any) -> None:
    self.file.close()


def closes_what_it_was_given(file: Any = None) -> None:
    if file is None:
        file = open("/dev/null")  # noqa: SIM115, PTH123
    file.close()


def closes_what_it_asks_for(self: Any) -> None:
    shared = self.open()
    shared.close()


def closes_another_by_the_same_name(self: Any) -> None:
    file = open("/dev/null")  # noqa: SIM115, PTH123
    file = self.file
    file.close()


def hands_its_close_on(self: Any) -> None:
    with contextlib.ExitStack() as stack:
        stack.callback(self.channel.close)


def closes_by_text(self: Any) -> None:
    getattr(self.channel, "close")()  # noqa: B009


ITS_OWN: list[Callable[..., None]] = [writes_a_file, asks_by_a_socket, opens_one_if_need_be, has_a_cursor]
ANY: list[Callable[..., None]] = [
    closes_what_it_has_opened_before, closes_what_it_was_given, closes_what_it_asks_for, closes_another_by_the_same_name,
    hands_its_close_on, closes_by_text, closes_the_only_object_of_a_class,
]  # fmt: skip


@pytest.mark.parametrize("function", [*ITS_OWN, *ANY], ids=lambda one: str(one.__name__))
def test_whether_a_function_may_close_what_others_use(function: Callable[..., None]) -> None:
    assert closes_others(function.__code__) is (function in ANY)
