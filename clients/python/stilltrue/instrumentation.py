"""Instruments a process with one line: servers and channels made from then on are recorded.

    import stilltrue
    stilltrue.instrument(service="orders")

It replaces the functions of the modules ``grpc`` and ``grpc.aio`` that make servers and channels, also where another module has
imported them by name (``from grpc import insecure_channel``), and records the thread pools given to servers. It cannot reach
servers and channels that were made before: a warning says how many there are, and so do the detector's answers.
"""

from __future__ import annotations

import functools
import inspect
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import grpc.aio

from stilltrue.agent import Agent
from stilltrue.http import hooks
from stilltrue.runtime.deferral import Deferred, deferred
from stilltrue.runtime.introspection import dumps
from stilltrue.runtime.rebinding import Undo, rebind

_LOGGER = logging.getLogger("stilltrue")


class _Instrumented:
    """The replaced functions, and the agent."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.agent: Agent | None = None
        self.undo: list[Undo] = []


_STATE = _Instrumented()


def instrument(service: str | None = None, **settings: Any) -> Agent:
    """Instrument this process and return the agent; the settings are those of :class:`stilltrue.Agent`. Idempotent."""
    with _STATE.lock:
        if _STATE.agent is None:
            agent = Agent(service, **settings)
            _STATE.agent = agent
            channel = functools.partial(_channel, agent)
            replaced = dict(
                [
                    _replace(grpc, "insecure_channel", channel),
                    _replace(grpc, "secure_channel", channel),
                    _replace(grpc.aio, "insecure_channel", channel),
                    _replace(grpc.aio, "secure_channel", channel),
                    _replace(grpc, "server", functools.partial(_server, agent)),
                    _replace(grpc.aio, "server", functools.partial(_aio_server, agent)),
                    *(_replace(dumps.MODULE, name, stand_in) for name, stand_in in dumps.STAND_INS),
                ]
            )
            _STATE.undo += rebind(replaced)
            if agent.settings.enabled:
                _STATE.undo.append(hooks.install(agent.http_makers()))
            _warn_of_unseen(agent)
        return _STATE.agent


def uninstrument() -> None:
    """Restore the replaced functions, and leave the detector. Objects made meanwhile keep recording, to no effect."""
    with _STATE.lock:
        for undo in _STATE.undo:
            undo()
        _STATE.undo.clear()
        agent, _STATE.agent = _STATE.agent, None
    if agent is not None:
        agent.close()


def _warn_of_unseen(agent: Agent) -> None:
    try:
        unseen = agent.sight.look_for_unseen()
    except Exception:  # noqa: BLE001 - fail open
        agent.live.report_failure("servers and channels are looked for")
        return
    if unseen:
        text = "made before instrument() and therefore not recorded: servers and channels=%d; call it before they are made"
        _LOGGER.warning(text, unseen)
        agent.start()


def _replace(module: Any, name: str, make: Callable[..., Any]) -> tuple[Any, Any]:
    """Replace one function; returns the original and its replacement."""
    known = deferred(module.__name__, name)
    if known is not None:
        known.make = make
        _STATE.undo.append(functools.partial(_step_aside, known, module, name))
        return known.original, known.wrapper
    original = getattr(module, name)

    @functools.wraps(original)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        return make(original, *args, **kwargs)

    _STATE.undo.append(functools.partial(setattr, module, name, original))
    setattr(module, name, recorded)
    return original, recorded


def _step_aside(known: Deferred, module: Any, name: str) -> None:
    """Restore a function of gRPC's, unless our replacement of it has been wrapped; a wrapped one calls the original."""
    known.make = None
    if getattr(module, name) is known.wrapper:
        setattr(module, name, known.original)


def _channel(agent: Agent, original: Callable[..., Any], target: str, *args: Any, **kwargs: Any) -> Any:
    given = inspect.signature(original).bind(target, *args, **kwargs).arguments
    return agent.channel(original(target, *args, **kwargs), target, options=given.get("options") or ())


def _server(agent: Agent, original: Callable[..., Any], thread_pool: Any, *args: Any, **kwargs: Any) -> Any:
    if isinstance(thread_pool, ThreadPoolExecutor):
        agent.pool(thread_pool)
    positional = list(args)
    if len(positional) > 1:  # grpc.server(thread_pool, handlers, interceptors, ...)
        positional[1] = _first(agent.server_interceptor(), positional[1])
    else:
        kwargs["interceptors"] = _first(agent.server_interceptor(), kwargs.get("interceptors"))
    return original(thread_pool, *positional, **kwargs)


def _aio_server(agent: Agent, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    pool = args[0] if args else kwargs.get("migration_thread_pool")
    if isinstance(pool, ThreadPoolExecutor):
        agent.pool(pool)
    positional = list(args)
    if len(positional) > 2:  # grpc.aio.server(migration_thread_pool, handlers, interceptors, ...)
        positional[2] = _first(agent.aio_server_interceptor(), positional[2])
    else:
        kwargs["interceptors"] = _first(agent.aio_server_interceptor(), kwargs.get("interceptors"))
    return original(*positional, **kwargs)


def _first(ours: Any, others: Any) -> tuple[Any, ...]:
    """Put our interceptor before the others, unless the application has already put one there."""
    given = tuple(others or ())
    return given if any(isinstance(other, type(ours)) for other in given) else (ours, *given)
