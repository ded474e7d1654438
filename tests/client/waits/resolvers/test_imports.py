"""A thread that imports a module waits for the thread that is already importing it."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.look.worlds import look_at, of
from tests.client.waits.conftest import PATIENCE_SECONDS, Front, targets

_GO, _INSIDE = threading.Event(), threading.Event()


def wait_inside() -> None:
    """The module's code during the import."""
    _INSIDE.set()
    assert _GO.wait(PATIENCE_SECONDS)


@pytest.fixture
def slow_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a module whose import lasts until :data:`_GO`."""
    _GO.clear()
    _INSIDE.clear()
    tmp_path.joinpath("slow_module.py").write_text(f"from {__name__} import wait_inside\nwait_inside()\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield "slow_module"
    _GO.set()
    sys.modules.pop("slow_module", None)


def test_an_import_of_a_module_being_imported_waits_for_that_thread(front: Front, slow_module: str) -> None:
    front.start("first", importlib.import_module, slow_module)
    assert _INSIDE.wait(PATIENCE_SECONDS)
    front.start("second", importlib.import_module, slow_module)
    assert targets(front.seen("thread:second")) == ["thread:first"]
    report = front.report_when_still("second")
    assert of(look_at(front.agent, report), "front/thread:second").unchanged
    _GO.set()
    front.let_go()


def test_the_importing_thread_itself_does_not_wait(front: Front, slow_module: str) -> None:
    front.start("first", importlib.import_module, slow_module)
    assert _INSIDE.wait(PATIENCE_SECONDS)
    assert not [wait for wait in front.report_when_still("first").waits if wait.waiter.endswith("thread:first")]
    _GO.set()
    front.let_go()
