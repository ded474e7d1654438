"""The threads by which queues of ``multiprocessing`` send their items."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from types import FrameType

from stilltrue.runtime.bytecode.qualified_names import qualname_of
from stilltrue.runtime.introspection.frames import variables_of

_FILE = "multiprocessing/queues.py"
_WAIT = threading.Condition.wait.__code__


def is_idle_feeder(frames: Sequence[FrameType]) -> bool:
    """Whether a thread with these frames waits for a queue's next item, which only whoever has the queue gives it."""
    if len(frames) < 2 or frames[0].f_code is not _WAIT:
        return False
    feeds = frames[1]
    if qualname_of(feeds.f_code) != "Queue._feed" or not feeds.f_code.co_filename.replace("\\", "/").endswith(_FILE):
        return False
    items = variables_of(feeds).get("buffer")
    return type(items) is deque and not items
