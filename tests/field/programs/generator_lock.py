"""A generator yields items under their collection's lock; the loop over them takes one out, and needs the lock for that."""

import threading
from collections.abc import Generator

from field_program import FAR_SECONDS, MODE, begin, join, stay


class Sessions:
    """Sessions under one lock."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.names = ["first", "second"]

    def all(self) -> Generator[str, None, None]:
        with self.lock:
            if MODE != "copied":
                yield from self.names
            names = list(self.names)
        yield from names

    def drop(self, name: str) -> None:
        if MODE == "limit":
            if self.lock.acquire(timeout=FAR_SECONDS):
                self.lock.release()
            return
        with self.lock:  # core: site
            self.names.remove(name)
        if MODE == "copied":
            threading.Event().wait(FAR_SECONDS)


def close_later(names: Generator[str, None, None]) -> None:
    threading.Event().wait(FAR_SECONDS)
    names.close()


def drop_each(sessions: Sessions, names: Generator[str, None, None]) -> None:
    for name in names:
        sessions.drop(name)


def main() -> None:
    sessions = Sessions()
    if MODE == "closed":
        names = sessions.all()
        begin(close_later, names)
        drop_each(sessions, names)
    for name in sessions.all():
        sessions.drop(name)


join("site")
begin(main)
stay()
