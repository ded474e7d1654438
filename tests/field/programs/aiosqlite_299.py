"""omnilib/aiosqlite 299: a program is over, and its connection, never closed, has a thread that waits for the next statement.

The connection closes itself when it is released, but a global keeps it.
"""

import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue

from field_program import FAR_SECONDS, MODE, join, ready


def run(statements: "SimpleQueue[tuple[Future[object], Callable[[], object]] | None]") -> None:
    """Run statements in the thread of a connection, as SQLite's connections must be used in one thread."""
    while (statement := statements.get()) is not None:  # core: notes
        future, function = statement
        future.set_result(function())


class Connection:
    """A connection with a thread of its own."""

    def __init__(self) -> None:
        self.statements: SimpleQueue[tuple[Future[object], Callable[[], object]] | None] = SimpleQueue()
        threading.Thread(target=run, args=(self.statements,), daemon=MODE == "daemon").start()
        self.connection = self.execute(lambda: sqlite3.connect(":memory:"))

    def execute(self, function: Callable[[], object]) -> object:
        future: Future[object] = Future()
        self.statements.put((future, function))
        return future.result()

    def close(self) -> None:
        self.statements.put(None)

    def __del__(self) -> None:
        self.close()


def close_later() -> None:
    threading.Event().wait(FAR_SECONDS)
    connection.close()


def keep() -> None:
    kept = Connection()  # noqa: F841 - never used again, and released at the end, which closes it
    threading.Event().wait(FAR_SECONDS)


join("notes")
if MODE == "kept":
    threading.Thread(target=keep).start()
else:
    connection = Connection()
if MODE in ("closed", "daemon"):
    threading.Thread(target=close_later).start()
ready()
