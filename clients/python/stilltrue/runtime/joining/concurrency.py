"""Makes a program join when it is to do two things at once: at its first thread, event loop or child process.

Until then there is one thread, so the agent's imports meet no other import, and no fork that they would outlast: it joins
before it starts a thread or a loop, but after it has started a child. It is for the program that the user named, which may
wait without ever using gRPC or HTTP. Its children join at their first channel, server or request: a helper that starts a thread
is not a member, nor is each of the processes that a server forks for its requests.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

from stilltrue.runtime.joining.import_hook import Finder, after_import

STARTS = {
    "threading": ("Thread", "start"),
    "asyncio.base_events": ("BaseEventLoop", "run_forever"),
    "uvloop": ("Loop", "run_forever"),
    "multiprocessing.process": ("BaseProcess", "start"),
    "subprocess": ("Popen", "__init__"),
}
"""The methods that start a thread, a loop or a child process, by module."""
_OF_CHILDREN = frozenset({"multiprocessing.process", "subprocess"})


class _State:
    """The replaced methods of this process."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.attach: Callable[[], object] | None = None
        self.process = 0
        """The process that is to join, not its forked children."""
        self.finder: Finder | None = None
        self.originals: list[tuple[type, str, Any, Any]] = []
        """Class, name, method and wrapper."""


_STATE = _State()


def join_when_concurrent(attach: Callable[[], object]) -> None:
    """Call ``attach`` once, right before this process starts its first thread or event loop, or after its first child."""
    with _STATE.lock:
        if _STATE.attach is not None:
            return
        _STATE.attach, _STATE.process = attach, os.getpid()
        for name in STARTS:
            if name in sys.modules:
                _replace(sys.modules[name])
        _STATE.finder = after_import(STARTS, _replace)


def _replace(module: ModuleType) -> None:
    owner_name, name = STARTS[module.__name__]
    owner = getattr(module, owner_name, None)
    with _STATE.lock:
        if _STATE.attach is None or not isinstance(owner, type):
            return
        original = getattr(owner, name)
        is_child = module.__name__ in _OF_CHILDREN

        @functools.wraps(original)
        def starts(*args: Any, **kwargs: Any) -> Any:
            if is_child:
                result = original(*args, **kwargs)
                _attach()
                return result
            _attach()
            return original(*args, **kwargs)

        _STATE.originals.append((owner, name, vars(owner).get(name), starts))
        setattr(owner, name, starts)


def do_not_join() -> Callable[[], object] | None:
    """Restore the methods: the process has an agent now, which starts threads itself. Returns what would have been called."""
    with _STATE.lock:
        attach, _STATE.attach = _STATE.attach, None
        _restore()
    return attach


def _attach() -> None:
    attach = do_not_join()
    if attach is not None and os.getpid() == _STATE.process:
        attach()


def _restore() -> None:
    """Restore the methods; a wrapper that was wrapped in turn stays, and calls the original."""
    for owner, name, original, wrapper in _STATE.originals:
        if vars(owner).get(name) is wrapper:
            if original is None:
                delattr(owner, name)
            else:
                setattr(owner, name, original)
    _STATE.originals.clear()
    if _STATE.finder is not None and _STATE.finder in sys.meta_path:
        sys.meta_path.remove(_STATE.finder)
    _STATE.finder = None
