"""A block fails before it tells its worker to stop, and the block's exit joins the worker."""

import contextlib
import functools
import queue
import sys
import threading
from collections.abc import Callable
from types import TracebackType

from field_program import FAR_SECONDS, MODE, begin, join, stay


def logged(function: Callable[..., None]) -> Callable[..., None]:
    """Log each call."""

    @functools.wraps(function)
    def call(*args: object, **kwargs: object) -> None:
        print(function.__name__, file=sys.stderr)
        return function(*args, **kwargs)

    return call


class Loader:
    """Loads rows in a thread, until it gets ``None``."""

    def __init__(self) -> None:
        self.rows: queue.Queue[str | None] = queue.Queue()
        self.worker = begin(functools.partial(self.load, table="prices"))

    @logged
    def load(self, table: str) -> None:
        while self.rows.get(timeout=FAR_SECONDS if MODE == "limit" else None) is not None:  # core: prices
            pass

    def __enter__(self) -> "Loader":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.worker.join(FAR_SECONDS if MODE == "joined" else None)  # core: prices


def stop_later(loader: Loader) -> None:
    threading.Event().wait(FAR_SECONDS)
    loader.rows.put(None)


def main() -> None:
    with contextlib.suppress(ValueError), Loader() as loader:
        if MODE == "stopped":
            begin(stop_later, loader)
        loader.rows.put("one")
        raise ValueError("a bad row")
        loader.rows.put(None)


join("prices")
begin(main)
stay()
