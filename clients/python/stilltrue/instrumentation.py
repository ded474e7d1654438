"""Instruments a process with one line: servers and channels made afterwards are recorded.

    import stilltrue
    stilltrue.instrument(service="orders")

It replaces the functions of ``grpc`` and ``grpc.aio`` that make servers and channels, including references in modules that
imported them by name (``from grpc import insecure_channel``), and records the thread pools passed to servers. Servers and
channels made earlier are not recorded: a warning and the detector's answers say how many there are.
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

from stilltrue.agent import INSTRUMENTING, Agent
from stilltrue.http import instrumented_methods
from stilltrue.runtime import own_threads
from stilltrue.runtime.introspection import faulthandler_exit
from stilltrue.runtime.joining.deferral import Deferred, deferred
from stilltrue.runtime.rebinding import Undo, rebind

_LOGGER = logging.getLogger("stilltrue")


class _State:
    """The agent, and how to undo the instrumentation."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.agent: Agent | None = None
        self.undo: list[Undo] = []


_STATE = _State()


def instrument(service: str | None = None, **settings: Any) -> Agent:
    """Instrument this process and return its agent. Arguments are those of :class:`stilltrue.Agent`.

    Idempotent: a second call returns the same agent and ignores its arguments. Raises as :class:`stilltrue.Agent`.
    """
    with _STATE.lock:
        if _STATE.agent is None:
            agent = Agent(service, **settings)
            _STATE.agent = agent
            INSTRUMENTING[:] = [agent]
            channel = functools.partial(_channel, agent)
            replaced = dict(
                [
                    _replace(grpc, "insecure_channel", channel),
                    _replace(grpc, "secure_channel", channel),
                    _replace(grpc.aio, "insecure_channel", channel),
                    _replace(grpc.aio, "secure_channel", channel),
                    _replace(grpc, "server", functools.partial(_server, agent)),
                    _replace(grpc.aio, "server", functools.partial(_aio_server, agent)),
                    *own_threads.LISTINGS.values(),
                    *(_replace(faulthandler_exit.MODULE, name, stand_in) for name, stand_in in faulthandler_exit.STAND_INS),
                ]
            )
            _STATE.undo += rebind(replaced)
            agent.sight.instrumented = True
            if agent.settings.enabled:
                _STATE.undo.append(instrumented_methods.install(agent.http_replacements()))
            _warn_of_unrecorded(agent)
        elif service is not None and service != _STATE.agent.settings.service:
            _LOGGER.warning(
                "already joined as %s: instrument(%r) comes too late and changes nothing",
                _STATE.agent.settings.service,
                service,
            )
        return _STATE.agent


def uninstrument() -> None:
    """Restore the replaced functions and close the agent. Channels and servers made meanwhile keep recording, to no effect."""
    with _STATE.lock:
        for undo in _STATE.undo:
            undo()
        _STATE.undo.clear()
        agent, _STATE.agent = _STATE.agent, None
        INSTRUMENTING.clear()
    if agent is not None:
        agent.close()


def _warn_of_unrecorded(agent: Agent) -> None:
    try:
        unrecorded = agent.sight.find_unrecorded()
    except Exception:  # noqa: BLE001 - fail open
        agent.live.report_failure("looking for servers and channels")
        return
    if unrecorded:
        text = "made before instrument() and therefore not recorded: servers and channels=%d; call it before they are made"
        _LOGGER.warning(text, unrecorded)
        agent.start()


def _replace(module: Any, name: str, make: Callable[..., Any]) -> tuple[Any, Any]:
    """Replace one function; returns the original and its replacement."""
    known = deferred(module.__name__, name)
    if known is not None:
        known.make = make
        _STATE.undo.append(functools.partial(_restore, known, module, name))
        return known.original, known.wrapper
    original = getattr(module, name)

    @functools.wraps(original)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        return make(original, *args, **kwargs)

    _STATE.undo.append(functools.partial(setattr, module, name, original))
    setattr(module, name, recorded)
    return original, recorded


def _restore(known: Deferred, module: Any, name: str) -> None:
    """Restore a function of gRPC; if our replacement was wrapped in turn, it stays and calls the original."""
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


def _first(ours: Any, others: Any) -> list[Any]:
    """Put our interceptor before the others, unless the application has already added one.

    A list: Elastic APM inserts its own into it.
    """
    given = list(others or ())
    return given if any(isinstance(other, type(ours)) for other in given) else [ours, *given]
