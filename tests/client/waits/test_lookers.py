"""A running thread that can reach what another waits for, but whose code does not end the wait, is no way out of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.client.waits.test_own_modules import needs_memory, told_by

_MAIN = """
import tests.mutants.injection  # a mutant is put into this process, too
from app.start import begin, tell
del tests.mutants.injection.importlib  # by which code of the application's might load anything
begin()
tell()
"""
_START = """
import json, os, sys, threading, time
from app.program import finish, look
from app.state import ready
from stilltrue.runtime.introspection.frames import frames_of_threads
from stilltrue.runtime.own_ref import OwnRef
from stilltrue.runtime.waits.reachability import thread_waits
from stilltrue.runtime.waits.reachability.awaited_objects import awaited_in

SECONDS = 30.0
NAMES = {}

def start(name, function):
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    NAMES[thread.ident] = name

def wait():
    ready.wait()

def begin():
    start("waiter", wait)
    start("looker", look)
    start("finisher", finish)

def tell():
    end = time.monotonic() + SECONDS
    found = None
    while time.monotonic() < end and found is None:
        time.sleep(0.2)
        frames = frames_of_threads()
        ident = next(one for one, name in NAMES.items() if name == "waiter")
        awaited = awaited_in(ident, frames.get(ident, ()))
        if awaited is None:
            continue
        thing = OwnRef(awaited.thing)
        del awaited, frames
        found = thread_waits.proved({ident: thing}, time.thread_time() + 60).get(ident)
    known = None if found is None else sorted(NAMES.get(one, "?") for one in found.threads if one != threading.get_ident())
    sys.stdout.flush()
    os.write(1, f"\\n{json.dumps(known)}\\n".encode())  # what other threads print comes first, or never
    os._exit(0)
"""
_STATE = """
import queue, threading

class Service:
    def __init__(self):
        self.ready = threading.Event()
        self.names = ["a"]
        self.box = queue.Queue()
        self.kept = []

    def status(self):
        return self.ready.is_set()

    def run(self):
        return len(self.names)

    def begin(self):
        self.ready.set()

service = Service()
ready = service.ready
"""
_NEVER = """
def never():
    return False
"""
_SET_IT = """
def set_it(*_):
    ready.set()
"""
_WRAPPED = """
def wraps(function):
    def inner():
        function()
        ready.set()
    return inner

@wraps
def wrapped():
    pass
"""
_BEGINS = """
class Begins:
    def __init__(self):
        ready.set()

class Derived(Begins):
    pass
"""
_UPDATES = """
class Updates:
    def __init__(self):
        self.update = set_it
"""
_TOOLS = """
class Tools:
    def __init__(self, one):
        self.one = one
"""
_BY_TYPE = """
import functools

class Typed:
    run = functools.singledispatchmethod(set_it)

service.tools = Tools(Typed())
"""
_KEPT = """
sink = type("Sink", (), {})()
vars(sink)["append"] = set_it
service.tools = Tools(sink)
"""
_MADE = """
service.tools = Tools(type("Other", (), {"run": set_it})())
"""
_FIELD = """
from dataclasses import dataclass
from typing import Any

@dataclass
class Feed:
    get: Any

feed = Feed(lambda: None)
object.__setattr__(feed, "get", set_it)
service.tools = Tools(feed)
"""
_ADAPTER = """
import logging

class Adapter(logging.LoggerAdapter):
    def process(self, message, options):
        if never():
            ready.set()
        return message, options

service.tools = Tools(Adapter(logging.getLogger("app"), {}))
"""
_BY_DEFAULT = """
import collections
by_default = collections.defaultdict(lambda: never() and ready.set())
"""
_JOBS = """
import sched

class Tables:
    def __init__(self):
        self.jobs = sched.scheduler()

    def run(self):
        print(self.jobs)

service.tables = Tables()
service.tables.jobs.enter(3600, 1, set_it)
"""
_PROGRAM = """
import time
from app import state

def act_later(again=True):
    if not again:
        state.ready.set()
    time.sleep(0.05)
    if state.never():
        act_later(False)

def look():
    while True:
        time.sleep(0.05)
        act()

def finish():
    time.sleep(3600)
"""


@needs_memory
@pytest.mark.parametrize(
    "acts",
    [
        "print(state.ready)",
        "len(state.service.names)",
        "state.service.status()",
        "state.service.run()",
        "set(state.service.names)",
        "state.service.names.append(state.ready)",
        "state.stop.wait(0.01)",
        "state.never() and print(state.service.names, f'{state.service.status():>8}')",
    ],
)
def test_a_thread_that_only_looks_is_no_way_out(acts: str, tmp_path: Path) -> None:
    program, state = _PROGRAM.replace("state.ready.set()", "print()"), f"{_STATE}{_NEVER}stop = threading.Event()\n"
    found = told_by(_MAIN, tmp_path, f"{program}\ndef act():\n    {acts}\n", state=state, start=_START)
    assert found == []


WAYS = {
    "it sets": ("state.never() and state.ready.set()", ""),
    "a method": ("state.never() and state.service.begin()", ""),
    "a text": ("state.never() and getattr(state.ready, 's' + 'et')()", ""),
    "a method by a text": ("state.never() and getattr(state.service, 'be' + 'gin')()", ""),
    "any code": ("state.never() and eval('state.ready.set()')", ""),
    "an import": ("state.never() and __import__('app.state')", ""),
    "a map": ("state.never() and list(map(type(state.ready).set, [state.ready]))", ""),
    "a kept method": ("state.never() and state.kept[0]()", "kept = [ready.set]"),
    "an item": ("state.never() and state.kept[0]()", f"{_SET_IT}kept = [set_it]"),
    "another name": ("state.never() and state.hook()", f"{_SET_IT}hook = set_it"),
    "an attribute": ("state.never() and state.service.hook()", f"{_SET_IT}service.hook = set_it"),
    "an attribute named like a method": ("state.never() and state.Updates().update()", f"{_SET_IT}{_UPDATES}"),
    "each of several": ("state.never() and [one() for one in state.hooks]", f"{_SET_IT}hooks = [set_it]"),
    "a key": ("state.never() and sorted(state.service.names, key=state.key)", f"{_SET_IT}key = set_it"),
    "a property": ("state.service.begun", "Service.begun = property(lambda self: never() and ready.set())"),
    "a property with another name": ("state.service.begun", f"{_SET_IT}Service.begun = property(set_it)"),
    "a property by a text": ("'{0.begun}'.format(state.service)", f"{_SET_IT}Service.begun = property(set_it)"),
    "a wrapper": ("state.never() and state.wrapped()", _WRAPPED),
    "a constructor": ("state.never() and state.Begins()", _BEGINS),
    "an inherited constructor": ("state.never() and state.Derived()", _BEGINS),
    "a default": ("state.by_default['a']", _BY_DEFAULT),
    "a barrier's action": (
        "state.barrier.wait()",
        f"{_SET_IT}barrier = threading.Barrier(1, action=set_it if never() else int)",
    ),
    "what it has behind it": ("act_later()", ""),
    "a library's method named like one of its own": ("state.service.tables.jobs.run(False)", f"{_SET_IT}{_JOBS}"),
    "a function kept under a list's method": (
        "state.never() and state.service.tools.one.append()",
        f"{_SET_IT}{_TOOLS}{_KEPT}",
    ),
    "a field that is a function": ("state.never() and state.service.tools.one.get()", f"{_SET_IT}{_TOOLS}{_FIELD}"),
    "a method of a class that is made": (
        "state.never() and state.service.tools.one.run()",
        f"{_SET_IT}{_TOOLS}{_MADE}",
    ),
    "a function for one type": (
        "state.never() and state.service.tools.one.run(1)",
        f"{_SET_IT}{_TOOLS}{_BY_TYPE}",
    ),
    "a method that a library's calls": ("state.never() and state.service.tools.one.warning('')", f"{_TOOLS}{_ADAPTER}"),
}


@needs_memory
@pytest.mark.parametrize("way", WAYS)
def test_a_thread_that_may_end_the_wait_is_a_way_out(way: str, tmp_path: Path) -> None:
    acts, state = WAYS[way]
    program, start = f"{_PROGRAM}\ndef act():\n    {acts}\n", _START.replace("30.0", "3.0")
    found = told_by(_MAIN, tmp_path, program, state=f"{_STATE}{_NEVER}{state}\n", start=start)
    assert found is None or "looker" in found


@needs_memory
@pytest.mark.parametrize(
    ("method", "acts"),
    [
        ("__repr__", "print(state.service)"),
        ("__repr__", "print([state.service])"),
        ("__str__", "print(f'{state.service}')"),
        ("__len__", "len(state.service)"),
        ("__bool__", "not state.service or print()"),
        ("__iter__", "[one for one in state.service or ()]"),
        ("__eq__", "state.service == state.kept"),
        ("__hash__", "{state.service: 1}"),
        ("__enter__", "with state.service: pass"),
        ("__getattr__", "state.service.unknown"),
        ("__del__", "state.Service()"),
    ],
)
def test_so_is_one_that_may_end_it_by_a_method_that_it_does_not_name(method: str, acts: str, tmp_path: Path) -> None:
    state = f"""
import threading
kept = []
FOUND = {{"__repr__": "", "__str__": "", "__len__": 0, "__bool__": True, "__iter__": iter(()), "__hash__": 1}}

class Service:
    def __init__(self):
        self.ready = ready

    def __exit__(self, *_):
        pass

    def {method}(self, *_):
        never() and self.ready.set()
        return FOUND.get("{method}")

def never():
    return False

ready = threading.Event()
service = Service()
"""
    start = _START.replace("30.0", "3.0")
    found = told_by(_MAIN, tmp_path, f"{_PROGRAM}\ndef act():\n    {acts}\n", state=state, start=start)
    assert found is None or "looker" in found


_IN_BLOCK = """
import time
from app import state

def look():
    with state.service:
        time.sleep(3600)

def finish():
    time.sleep(3600)
"""


@needs_memory
@pytest.mark.parametrize("service", ["Service()", "guard()"])
def test_so_is_one_in_a_block_whose_exit_may_end_it(service: str, tmp_path: Path) -> None:
    state = f"""
import contextlib, threading

class Service:
    def __init__(self):
        self.ready = ready

    def __enter__(self):
        pass

    def __exit__(self, *_):
        self.ready.set()

@contextlib.contextmanager
def guard():
    try:
        yield
    finally:
        ready.set()

ready = threading.Event()
service = {service}
"""
    found = told_by(_MAIN, tmp_path, _IN_BLOCK, state=state, start=_START.replace("30.0", "3.0"))
    assert found is None or "looker" in found


_LIBRARY = """
class Gate:
    def __init__(self, ready):
        self.ready = ready

    def __enter__(self):
        pass

    def __exit__(self, *_):
        self.ready.set()

    @property
    def is_open(self):
        self.ready.set()
"""


@needs_memory
@pytest.mark.parametrize("program", [_IN_BLOCK, f"{_PROGRAM}\ndef act():\n    state.never() and state.service.is_open\n"])
def test_so_is_one_that_has_a_librarys_object(program: str, tmp_path: Path) -> None:
    """Its methods may run without being named: the exit of a block of a readers-writer lock."""
    folder = tmp_path / "lib" / "site-packages"
    (folder / "gates").mkdir(parents=True)
    (folder / "gates" / "__init__.py").write_text(_LIBRARY)
    state = f"""
import sys, threading
sys.path.append({str(folder)!r})
from gates import Gate

def never():
    return False

ready = threading.Event()
service = Gate(ready)
"""
    found = told_by(_MAIN, tmp_path, program, state=state, start=_START.replace("30.0", "3.0"))
    assert found is None or "looker" in found


@needs_memory
def test_one_to_whom_it_may_hand_the_object_is_a_way_out(tmp_path: Path) -> None:
    program = """
import time
from app import state

def look():
    while True:
        time.sleep(0.05)
        if state.never():
            state.given.append(state.ready)

def finish():
    while True:
        time.sleep(0.05)
        for one in state.given:
            one.set()
"""
    found = told_by(_MAIN, tmp_path, program, state=f"{_STATE}{_NEVER}given = []\n", start=_START)
    assert found == ["finisher"]
