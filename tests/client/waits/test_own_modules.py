"""A program is a package: its events and queues are globals of its modules, attributes of its classes, and held by its objects.

Each program here has a package ``app``, and a thread ``waiter`` that waits for an event. Those threads that can reach it are
told, or that others may.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stilltrue.runtime.compat import value_stack

_MAIN = """
import tests.mutants.injection  # a mutant is put into this process, too
from app.start import tell
del tests.mutants.injection.importlib  # by which code of the application's might load anything
from app import program
program.begin()
tell()
"""
_START = """
import json, os, threading, time
from stilltrue.runtime.introspection.frames import frames_of_threads
from stilltrue.runtime.own_ref import OwnRef
from stilltrue.runtime.waits.reachability import thread_waits
from stilltrue.runtime.waits.reachability.awaited_objects import awaited_in

IDLE = threading.Event()
NAMES = {}

def start(name, function):
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    NAMES[thread.ident] = name

def idle():
    IDLE.wait()

def still():
    return {NAMES[ident]: (ident, frames) for ident, frames in frames_of_threads().items() if ident in NAMES}

def tell():
    end = time.monotonic() + 30
    while time.monotonic() < end:
        time.sleep(0.2)
        waiting = still()
        if all(awaited_in(ident, frames) for ident, frames in waiting.values()):
            break
    ident, frames = waiting["waiter"]
    thing = OwnRef(awaited_in(ident, frames).thing)
    del frames, waiting
    proof = thread_waits.proved({ident: thing}, time.thread_time() + 60).get(ident)
    found = None if proof is None else sorted(NAMES.get(one, str(one)) for one in proof.threads if one != threading.get_ident())
    print(json.dumps(found), flush=True)
    os._exit(0)
"""
_STATE = """
import threading
ready = threading.Event()
other = threading.Event()
"""
_WAIT = """
from app.start import idle, start
from app import state

def wait():
    state.ready.wait()

def begin():
    start("waiter", wait)
    start("other", later)
"""
_TOLD = """
import tests.mutants.injection  # a mutant is put into this process, too
from tests.client.waits.exiting import tell_at_the_end
del tests.mutants.injection.importlib  # by which code of the application's might load anything
agent = tell_at_the_end({parties})
from app.program import main
main(agent)
"""
_OF_THREADS = """
import threading
from app.state import done, jobs

class Worker(threading.Thread):
    def run(self):
        while True:
            done.put(jobs.get())

class Feeder(threading.Thread):
    def run(self):
        for _ in range(20):
            jobs.put(None)
        for _ in range(20):
            done.get()

def main(agent):
    Worker(name="worker", daemon=True).start()
    feeder = Feeder(name="feeder")
    feeder.start()
    feeder.join()
"""
_OF_REQUESTS = """
import threading
import grpc
from concurrent.futures import ThreadPoolExecutor
from app.state import gate

class Gates:
    def pass_through(self, request, context):
        gate.wait()
        return b""

    def open(self, request, context):
        gate.open()
        return b""

def serve(agent):
    server = grpc.server(agent.pool(ThreadPoolExecutor(1)), interceptors=[agent.server_interceptor()])
    methods = {one: grpc.unary_unary_rpc_method_handler(getattr(Gates(), one)) for one in ("pass_through", "open")}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("gates", methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, port

def main(agent):
    server, port = serve(agent)
    channel = agent.channel(grpc.insecure_channel(f"127.0.0.1:{port}"))
    first = channel.unary_unary("/gates/pass_through").future(b"")
    gate.waits.wait()
    channel.unary_unary("/gates/open")(b"")
"""
_QUEUES = """
import queue
jobs, done = queue.Queue(1), queue.Queue(1)
"""
_GATE = """
import threading

class Gate:
    def __init__(self):
        self.condition = threading.Condition()
        self.is_open = False
        self.waits = threading.Event()

    def wait(self):
        with self.condition:
            self.waits.set()
            while not self.is_open:
                self.condition.wait()

    def open(self):
        with self.condition:
            self.is_open = True
            self.condition.notify_all()

gate = Gate()
"""
ROOT = Path(__file__).parents[3]
needs_memory = pytest.mark.skipif(not value_stack._can_read(), reason="this interpreter's frames cannot be read")
Run = Callable[..., list[str] | None]


def told_by(main: str, folder: Path, program: str, **modules: str) -> Any:
    """Runs a program, and returns what it tells at the end."""
    for name, text in {"__init__": "", "start": _START, "state": _STATE, "program": program, **modules}.items():
        file = folder / "app" / f"{name.replace('__of__', '/')}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))
    (folder / "main.py").write_text(main)
    paths = os.pathsep.join([str(folder), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONUNBUFFERED": ""}
    done = subprocess.run(
        [sys.executable, folder / "main.py"], capture_output=True, text=True, timeout=120, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def reaching(tmp_path: Path) -> Run:
    """Runs a program; returns the threads that can reach the event, or None if that is not proved."""

    def run(program: str, **modules: str) -> list[str] | None:
        found: list[str] | None = told_by(_MAIN, tmp_path, program, **modules)
        return found

    return run


SETS_LATER = """
def later():
    idle()
    state.ready.set()
"""
BY_ITS_NAME = """
from app.state import ready

def later():
    idle()
    ready.set()
"""
BY_ANOTHER_NAME = """
from app.state import ready as done

def later():
    idle()
    done.set()
"""
BY_A_FUNCTION = """
def finish():
    state.ready.set()

def later():
    idle()
    finish()
"""
BY_A_METHOD = """
class Finisher:
    def finish(self):
        state.ready.set()

def later():
    finisher = Finisher()
    idle()
    finisher.finish()
"""
BY_AN_INHERITED_METHOD = """
class Base:
    def finish(self):
        state.ready.set()

class Finisher(Base):
    pass

def later():
    finisher = Finisher()
    idle()
    finisher.finish()
"""
BY_MAKING_AN_OBJECT = """
class Finisher:
    def __init__(self):
        state.ready.set()

def later():
    idle()
    Finisher()
"""
BY_A_COMPUTED_NAME = """
def later():
    name = "".join(["re", "ady"])
    idle()
    getattr(state, name).set()
"""
BY_ITS_DICTIONARY = """
def later():
    name = "".join(["re", "ady"])
    idle()
    state.__dict__[name].set()
"""
BY_THE_PACKAGE = """
import app

def later():
    name = "".join(["re", "ady"])
    idle()
    getattr(app.state, name).set()
"""
BY_A_LATE_IMPORT = """
def later():
    idle()
    from app import state as found
    found.ready.set()
"""
BY_A_LATE_IMPORT_OF_THE_MODULE = """
def later():
    name = "".join(["re", "ady"])
    idle()
    import app.state as found
    getattr(found, name).set()
"""
BY_THE_MODULE_ITSELF = """
def read(module, name):
    return getattr(module, name)

def later():
    name = "".join(["re", "ady"])
    idle()
    read(state, name).set()
"""
BY_A_LIST_OF_MODULES = """
MODULES = [state]

def later():
    name = "".join(["re", "ady"])
    idle()
    for one in MODULES:
        getattr(one, name).set()
"""

BY_A_SUSPENDED_GENERATOR = """
def finish():
    yield
    state.ready.set()

KEPT = finish()
next(KEPT)

def later():
    idle()
    next(KEPT)
"""
BY_THE_END_OF_A_GENERATOR = """
def rows():
    try:
        yield 1
        yield 2
    finally:
        state.ready.set()

def later():
    found = rows()
    next(found)
    idle()
"""
BY_THE_THREADS_OWN_OBJECT = """
import threading

def later():
    threading.current_thread().kept = state.ready
    idle()
    threading.current_thread().kept.set()
"""
BY_A_PREDICATE = """
import threading

CONDITION = threading.Condition()

class Jobs:
    def drained(self):
        return state.ready.is_set()

def check(jobs):
    with CONDITION:
        CONDITION.wait_for(jobs.drained)

def later():
    check(Jobs())
"""
BY_A_LATE_IMPORT_INTO_A_GLOBAL = """
found = None

def load():
    global found
    from app import state as found

def later():
    name = "".join(["re", "ady"])
    idle()
    load()
    getattr(found, name).set()
"""
BY_ONE_OF_SEVERAL_LATE_IMPORTS = """
def later():
    name = "".join(["re", "ady"])
    idle()
    from app import state as found
    getattr(found, name).set()
    from app.start import idle as found
"""
BY_THE_END_OF_A_BLOCK = """
import contextlib

@contextlib.contextmanager
def finishing():
    yield
    state.ready.set()

def later():
    with finishing():
        idle()
"""


@needs_memory
@pytest.mark.parametrize(
    "later",
    [
        *(SETS_LATER, BY_ITS_NAME, BY_ANOTHER_NAME, BY_A_FUNCTION, BY_A_METHOD, BY_AN_INHERITED_METHOD, BY_MAKING_AN_OBJECT),
        *(
            BY_A_COMPUTED_NAME,
            BY_ITS_DICTIONARY,
            BY_THE_PACKAGE,
            BY_A_LATE_IMPORT,
            BY_A_LATE_IMPORT_OF_THE_MODULE,
            BY_THE_MODULE_ITSELF,
            BY_A_LIST_OF_MODULES,
        ),
        *(BY_A_SUSPENDED_GENERATOR, BY_THE_END_OF_A_BLOCK, BY_THE_END_OF_A_GENERATOR, BY_THE_THREADS_OWN_OBJECT),
        *(BY_A_PREDICATE, BY_A_LATE_IMPORT_INTO_A_GLOBAL, BY_ONE_OF_SEVERAL_LATE_IMPORTS),
    ],
)
def test_who_can_name_a_global_of_a_module_can_reach_it(later: str, reaching: Run) -> None:
    assert reaching(_WAIT + later) == ["other"]


USES_ANOTHER_GLOBAL = """
def later():
    idle()
    state.other.set()
"""
HAS_A_GLOBAL_OF_THE_SAME_NAME = """
ready = 1

def later():
    idle()
    print(ready)
"""
IMPORTS_ANOTHER_GLOBAL = """
def later():
    from app.state import other as found
    idle()
    print(found)
"""
HAS_NAMED_IT = """
def later():
    state.ready.is_set()
    idle()
"""
ITS_CLASS_IS_COMPARED = """
import collections.abc

class Waiter:
    def wait(self):
        state.ready.wait()

assert not isinstance(Waiter(), collections.abc.Iterable)

def later():
    idle()
"""
COULD_CALL_WHO_WAITS = """
class Waiter:
    def wait(self):
        state.ready.wait()

def later():
    waiter = Waiter()
    del waiter
    idle()
"""


@needs_memory
@pytest.mark.parametrize(
    "later",
    [
        USES_ANOTHER_GLOBAL,
        HAS_A_GLOBAL_OF_THE_SAME_NAME,
        IMPORTS_ANOTHER_GLOBAL,
        HAS_NAMED_IT,
        COULD_CALL_WHO_WAITS,
        ITS_CLASS_IS_COMPARED,
    ],
)
def test_who_does_not_name_it_cannot(later: str, reaching: Run) -> None:
    assert reaching(_WAIT + later) == []


_SERVICE = """
import threading
from app.start import idle, start

class Service:
    done = threading.Event()

    def __init__(self):
        self.ready = threading.Event()

    def wait(self):
        self.{name}.wait()

    def finish(self):
        self.{name}.set()

    def later(self):
        idle()
        self.finish()

service = Service()

def begin():
    start("waiter", service.wait)
    start("other", service.later)
"""


@needs_memory
@pytest.mark.parametrize("name", ["ready", "done"])
def test_the_objects_of_a_class_lead_to_what_it_has(name: str, reaching: Run) -> None:
    assert reaching(_SERVICE.format(name=name)) == ["other"]


@needs_memory
def test_a_class_and_its_objects_may_be_in_different_modules(reaching: Run) -> None:
    program = """
        from app.service import Service
        from app.start import start

        service = Service()

        def begin():
            start("waiter", service.wait)
            start("other", service.later)
        """
    assert reaching(program, service=_SERVICE.format(name="done")) == ["other"]


IN_A_NAMESPACE_PACKAGE = """
from app.start import idle, start
from app.parts import signals

def wait():
    signals.ready.wait()

def later():
    idle()
    signals.ready.set()

def begin():
    start("waiter", wait)
    start("other", later)
"""


@needs_memory
def test_a_package_needs_no_file_of_its_own(reaching: Run) -> None:
    assert reaching(IN_A_NAMESPACE_PACKAGE, parts__of__signals=_STATE) == ["other"]


TAKES_ALL_MODULES = """
import sys

def later():
    idle()
    for one in sys.modules.values():
        print(one)
"""
IMPORTS_ANOTHER = """
def later():
    idle()
    from app import unloaded
"""
IN_A_LIBRARYS_MODULE = """
import grpc
grpc.kept_for_the_test = state.ready

def later():
    idle()
"""
WITH_A_LIBRARYS_BASE = """
import google.protobuf.message

class Finisher(google.protobuf.message.Message):
    def finish(self):
        state.ready.set()

def later():
    idle()
"""
IN_THE_MODULES_OWN_LOOKUP = """
def later():
    idle()
    print(state.missing)
"""
AT_EXIT = """
import atexit

@atexit.register
def finish():
    state.ready.set()

def later():
    idle()
"""
ON_A_SIGNAL = """
import signal

def finish(*_):
    state.ready.set()

signal.signal(signal.SIGUSR1, finish)

def later():
    idle()
"""
BY_SUBCLASSES = """
class Finisher:
    def finish(self):
        state.ready.set()

def later():
    idle()
    for one in object.__subclasses__():
        print(one)
"""
BY_ADDRESS = """
import ctypes
ADDRESS = id(state.ready)

def later():
    idle()
    ctypes.cast(ADDRESS, ctypes.py_object).value.set()
"""
BESIDE_A_COMPILED_MODULE = """
import importlib.util, pathlib, shutil

origin = pathlib.Path(importlib.util.find_spec("_bisect").origin)
shutil.copy(origin, pathlib.Path(__file__).parent / origin.name)
del importlib
from app import _bisect

def later():
    idle()
"""
IN_AN_ASYNCHRONOUS_GENERATOR = """
async def finish():
    yield
    state.ready.set()

KEPT = finish()
try:
    KEPT.__anext__().send(None)
except StopIteration:
    pass

def later():
    idle()
"""
BY_A_LIST_OF_ANOTHER_NAME = """
import threading
from threading import enumerate as all_threads

def wait():
    threading.current_thread().ready = threading.Event()
    threading.current_thread().ready.wait()

def later():
    idle()
    for one in all_threads():
        print(one)
"""
FROM_BYTES = """
import pickle

class Job:
    def run(self):
        state.ready.set()

BLOB = pickle.dumps(Job())

def later():
    idle()
    pickle.loads(BLOB).run()
"""
BY_A_LOADER_OF_ANOTHER_NAME = """
from importlib import import_module as load

def later():
    idle()
    load("app.plugin").run()
"""
BY_A_TEXT_GIVEN_TO_A_LIBRARY = """
def later():
    idle()
    print("app.tasks.finish")
"""
CALLED_BY_C = """
import ctypes

class Device:
    def __init__(self):
        self.callback = ctypes.CFUNCTYPE(None)(self.on_data)

    def on_data(self):
        state.ready.set()

device = Device()

def later():
    idle()
"""
OF_THE_MAIN_MODULES_OTHER_NAME = """
import sys
sys.modules["entry"] = sys.modules["__main__"]
sys.modules["__main__"].ready = state.ready

def later():
    idle()
    from entry import ready
    ready.set()
"""
OF_A_LISTED_CLASS = """
import weakref

class Finisher:
    def finish(self):
        state.ready.set()

LISTED = weakref.ref(Finisher)

def later():
    idle()
    LISTED()
"""
OF_A_CLASS_IN_A_SET = """
import weakref

class Finisher:
    def finish(self):
        state.ready.set()

LISTED = weakref.WeakSet([Finisher])

def later():
    idle()
    print(LISTED)
"""


@needs_memory
@pytest.mark.parametrize(
    "later",
    [
        *(TAKES_ALL_MODULES, IMPORTS_ANOTHER, IN_A_LIBRARYS_MODULE, WITH_A_LIBRARYS_BASE, IN_THE_MODULES_OWN_LOOKUP, AT_EXIT),
        *(
            ON_A_SIGNAL,
            BY_ADDRESS,
            BY_SUBCLASSES,
            BESIDE_A_COMPILED_MODULE,
            OF_A_LISTED_CLASS,
            OF_A_CLASS_IN_A_SET,
            *(
                FROM_BYTES,
                BY_A_LOADER_OF_ANOTHER_NAME,
                BY_A_TEXT_GIVEN_TO_A_LIBRARY,
                CALLED_BY_C,
                OF_THE_MAIN_MODULES_OTHER_NAME,
            ),
            IN_AN_ASYNCHRONOUS_GENERATOR,
        ),
    ],
)
def test_what_may_reach_any_global_leaves_it_unknown(later: str, reaching: Run) -> None:
    state = _STATE + "\ndef __getattr__(name):\n    ready.set()\n" if later is IN_THE_MODULES_OWN_LOOKUP else _STATE
    assert reaching(_WAIT + later, state=state) is None


@needs_memory
@pytest.mark.parametrize(
    ("program", "state", "parties"),
    [(_OF_THREADS, _QUEUES, 3), (_OF_REQUESTS, _GATE, 2)],
    ids=["threads of its own classes", "methods of a server"],
)
def test_a_deadlock_in_a_package_is_seen_and_the_look_finds_no_way_out(
    program: str, state: str, parties: int, tmp_path: Path
) -> None:
    told = told_by(_TOLD.format(parties=parties), tmp_path, program, state=state)
    assert len(told["waits"]) >= parties
    assert told["free"] == []


_DERIVED = """
import sys
sys.path.append({folder!r})
from plugins import Plugin

class Finisher(Plugin):
    def finish(self):
        state.ready.set()

def later():
    idle()
    {later}
"""
_PLAIN_LIBRARY = """
class Plugin:
    def begin(self):
        self.finish()
"""
_LISTING_LIBRARY = (
    _PLAIN_LIBRARY
    + """
def finish_all():
    for one in Plugin.__subclasses__():
        one().finish()
"""
)
_REGISTERING_LIBRARY = """
KINDS = []

class Plugin:
    def __init_subclass__(cls):
        KINDS.append(cls)
"""


@needs_memory
@pytest.mark.parametrize(
    ("library", "later", "expected"),
    [
        (_PLAIN_LIBRARY, "", []),
        (_PLAIN_LIBRARY, "Finisher().begin()", ["other"]),
        (_LISTING_LIBRARY, "", None),
        (_REGISTERING_LIBRARY, "", None),
    ],
    ids=["plain", "named", "listing", "registering"],
)
def test_a_class_derived_from_a_librarys_is_reached_like_others_unless_that_lists_it(
    library: str, later: str, expected: list[str] | None, tmp_path: Path, reaching: Run
) -> None:
    folder = tmp_path / "lib" / "site-packages"
    (folder / "plugins").mkdir(parents=True)
    (folder / "plugins" / "__init__.py").write_text(library)
    assert reaching(_WAIT + _DERIVED.format(folder=str(folder), later=later)) == expected


@needs_memory
def test_a_library_that_is_yet_to_be_loaded_does_not(reaching: Run) -> None:
    later = """
def later():
    idle()
    import iniconfig
"""
    assert reaching(_WAIT + later) == []
