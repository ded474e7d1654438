"""By which attributes a function may end a wait that the code which calls it does not name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.client.waits.test_own_modules import needs_memory, told_by

_MAIN = """
import tests.mutants.injection  # a mutant is put into this process, too
del tests.mutants.injection.importlib
import json, time
from app import state
from stilltrue.runtime.introspection.frames import frames_of_threads
from stilltrue.runtime.own_ref import OwnRef
from stilltrue.runtime.waits.reachability.kept_functions import names_of_kept
from stilltrue.runtime.waits.reachability.references.thread_reach import leading_to

found = leading_to([OwnRef(state.ready)], frames_of_threads(), time.thread_time() + 60)
found.things.clear()
found.holders.clear()
names = names_of_kept(frozenset({"set"}), found)
print(json.dumps(None if names is None else sorted(names)))
"""
_STATE = """
import dataclasses, functools, logging, threading, types
ready = threading.Event()

def finish(*_):
    ready.set()

def look(*_):
    return ready.is_set()

class Service:
    def run(self):
        ready.set()

    @staticmethod
    def begin():
        ready.set()

@dataclasses.dataclass
class Feed:
    get: object

class Adapter(logging.LoggerAdapter):
    def process(self, message, options):
        return message, options
"""
_ADAPTER = """
class Alarm(logging.LoggerAdapter):
    def process(self, message, options):
        ready.set()
        return message, options
"""
_WRAPPED = """
def wraps(function):
    @functools.wraps(function)
    def inner(*arguments):
        return function(*arguments)
    return inner

finish = wraps(finish)
"""


@needs_memory
@pytest.mark.parametrize(
    ("kept", "names"),
    [
        ("", []),
        ("feed = Feed(look)", []),
        (_WRAPPED, []),
        ("feed = Feed(finish)", ["finish", "get"]),
        ("feed = Feed(Service().run)", ["get", "run"]),
        ("service = type('Other', (), {'update': finish})()", ["finish", "update"]),
        ("table = {'end': [finish]}", ["finish"]),
        ("named = types.SimpleNamespace(append=finish)", None),
        ("by_type = functools.singledispatch(finish)", None),
        ("logging.kept_for_the_test = finish", None),
        (_ADAPTER, None),
    ],
)
def test_the_attributes_that_are_functions_which_end_a_wait(kept: str, names: list[str] | None, tmp_path: Path) -> None:
    assert told_by(_MAIN, tmp_path, "", state=f"{_STATE}\n{kept}\n") == names
