"""Functions to which modules refer are found, replaced and restored; objects made before the agent are counted."""

from __future__ import annotations

import functools
import gc
import itertools
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from stilltrue.runtime.rebinding import rebind

PROGRAM = """
from functools import partial
def original(address): return "plain"
def recorded(address): return "recorded"
by_name = original
bound = partial(original, "a")
def with_default(make=original): return make("a")
class Client:
    make = staticmethod(original)
    bound = partial(original, "a")
    def method(self, make=original): return make("a")
    @staticmethod
    def static(make=original): return make("a")
class NeitherComparedNorHashed(type):
    def __eq__(cls, other): raise RuntimeError
class Strange(metaclass=NeitherComparedNorHashed):
    strange = None
Strange.strange = strange = Strange()
makers = {"one": original}
def all_ways():
    return [by_name("a"), bound(), with_default(), Client.make("a"), Client.bound(), Client().method(), Client.static(),
        makers["one"]("a")]
"""


@pytest.fixture
def program() -> Iterator[ModuleType]:
    module = ModuleType("stranger")
    exec(PROGRAM, vars(module))
    sys.modules["stranger"] = module
    yield module
    del sys.modules["stranger"]


def test_every_way_of_holding_a_function_is_found_and_undone(program: ModuleType) -> None:
    assert set(program.all_ways()) == {"plain"}
    undo = rebind({program.original: program.recorded})
    assert program.all_ways() == ["recorded"] * 8
    for one in undo:
        one()
    assert program.all_ways() == ["plain"] * 8


class Posing:
    """Passes for a module without being one, like the libraries of cffi."""

    __slots__ = ()
    __class__ = ModuleType  # type: ignore[assignment]  # it poses


class Fixed(type):
    def __setattr__(cls, name: str, value: object) -> None:
        raise TypeError("its attributes are fixed")


def test_strange_modules_are_left_as_they_are(program: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    unborn, fixed = ModuleType.__new__(ModuleType), ModuleType("fixed")
    vars(fixed)["Client"] = Fixed("Client", (), {"__module__": "fixed", "make": staticmethod(program.original)})
    for name, module in {"posing": Posing(), "unborn": unborn, "fixed": fixed}.items():
        monkeypatch.setitem(sys.modules, name, module)
    del sys.modules["stranger"]
    sys.modules["stranger"] = program  # the last to be searched
    assert isinstance(sys.modules["posing"], ModuleType)
    rebind({program.original: program.recorded})
    assert program.by_name("a") == "recorded"
    assert fixed.Client.make("a") == "plain"


def test_a_module_that_a_garbage_collection_imports_meanwhile_does_no_harm(
    program: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = itertools.count()

    def imports_one_more(phase: str, info: object) -> None:
        name = f"imported_by_a_finalizer_{next(numbers)}"
        monkeypatch.setitem(sys.modules, name, ModuleType(name))

    for number in range(3_000):  # more tuples than Python's free list holds, so listing the items triggers a collection
        monkeypatch.setitem(sys.modules, f"of_a_large_program_{number}", ModuleType("one"))
    often = gc.get_threshold()
    gc.callbacks.append(imports_one_more)
    gc.set_threshold(500)
    try:
        rebind({program.original: program.recorded})
    finally:
        gc.set_threshold(*often)
        gc.callbacks.remove(imports_one_more)
    assert program.by_name("a") == "recorded"
    assert next(numbers) > 0


def test_a_partial_keeps_its_arguments(program: ModuleType) -> None:
    vars(program)["bound"] = functools.partial(program.original, address="b")
    rebind({program.original: lambda address: f"recorded {address}"})
    assert vars(program)["bound"]() == "recorded b"


LATE = """
import logging, sys
logging.basicConfig(format="%(message)s", stream=sys.stdout)
from grpc import insecure_channel, server
import grpc, grpc.aio
from concurrent.futures import ThreadPoolExecutor
before = insecure_channel("127.0.0.1:1"), server(ThreadPoolExecutor(1))
import stilltrue
agent = stilltrue.instrument("late", detector="127.0.0.1:1")
mine = insecure_channel("127.0.0.1:1")
print(type(mine).__name__, mine is not before[0])
s = server(ThreadPoolExecutor(1))
sight = agent.sight.counts()
print(*(sight[name] for name in ("channels", "servers", "channels_unseen", "servers_unseen")))
stilltrue.uninstrument()
print(type(insecure_channel("127.0.0.1:1")).__name__)
del before
print(agent.sight.counts()["channels_unseen"])
"""


def test_instrument_rebinds_earlier_imports_and_warns_of_earlier_objects() -> None:
    done = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == [
        "made before instrument() and therefore not recorded: servers and channels=2; call it before they are made",
        "RecordedChannel True",
        "1 1 1 1",
        "Channel",
        "0",
    ]


TWICE = """
import logging, sys
logging.basicConfig(format="%(message)s", stream=sys.stdout)
import stilltrue
first = stilltrue.instrument("first", instance="first", detector="127.0.0.1:1").start()
with stilltrue.Agent("second", instance="second", detector="127.0.0.1:1"):
    pass
first.close()
"""


def test_a_second_agent_beside_the_instrumenting_one_warns() -> None:
    done = subprocess.run([sys.executable, "-c", TWICE], capture_output=True, text=True, timeout=60, check=True)
    (line,) = [line for line in done.stdout.splitlines() if "joins again" in line]
    assert "as first (stilltrue run, instrument())" in line
    assert "use the agent that stilltrue.instrument() returns" in line
