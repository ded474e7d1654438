"""Third-party predicates: the example package is installed and used, and plug-ins fail in every possible way."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from detector.core import registry
from detector.core.document.reader import read_document
from detector.core.registry import PluginError, UnknownPredicateError, ask, find_predicate, predicate_names
from detector.core.snapshot import Snapshot
from stilltrue.model import Activity, Holds, Verdict, Witness

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "decided"
BUILD = "import setuptools.build_meta as backend, sys; print(backend.build_wheel(sys.argv[1]))"


class Raises:
    name = "raises"

    def evaluate(self, snapshot: Snapshot) -> Verdict:
        raise RuntimeError("two\nlines")


class AnswersNonsense(Raises):
    name = "nonsense"

    def evaluate(self, snapshot: Snapshot) -> Verdict:
        return True  # type: ignore[return-value]


class EndsTheProgram(Raises):
    name = "ends"

    def evaluate(self, snapshot: Snapshot) -> Verdict:
        sys.exit(0)


class Answers(Raises):
    """Returns a verdict with one value replaced."""

    name = "answers"

    def __init__(self, **other: Any) -> None:
        self._values: dict[str, Any] = {
            "predicate": "answers",
            "holds": Holds.TRUE,
            "witness": Witness(kind="k", parties=(), text="t"),
        }
        self._values |= other

    def evaluate(self, snapshot: Snapshot) -> Verdict:
        return Verdict(**self._values)


class ComparesWithText(Raises):
    """Compares an activity with its text, and not with the enum's member."""

    name = "all-idle"

    def evaluate(self, snapshot: Snapshot) -> Verdict:
        busy = [name for name, state in snapshot.present().items() if state.activity != "idle"]
        text = f"{len(busy)} busy"
        witness = Witness(kind="busy", parties=(), text=text)
        return Verdict(predicate=self.name, holds=Holds.FALSE if busy else Holds.TRUE, witness=witness, snapshot=snapshot.ref)


class NoPredicate:
    pass


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Installs predicates for one test; maps names to entry-point values."""
    known: dict[str, str] = {}

    def entry_points(*, group: str, name: str | None = None) -> list[EntryPoint]:
        assert group == "stilltrue.predicates"
        return [EntryPoint(each, value, group) for each, value in known.items() if name in (None, each)]

    monkeypatch.setattr(registry, "entry_points", entry_points)
    monkeypatch.setitem(sys.modules, "mine", sys.modules[__name__])
    return known


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example package, built and unpacked as by an installer."""
    source = tmp_path_factory.mktemp("source") / "decided"
    shutil.copytree(EXAMPLE, source)
    wheels, site = tmp_path_factory.mktemp("wheels"), tmp_path_factory.mktemp("site")
    subprocess.run([sys.executable, "-c", BUILD, str(wheels)], cwd=source, check=True, capture_output=True)
    for wheel in wheels.glob("*.whl"):
        zipfile.ZipFile(wheel).extractall(site)
    return site


@pytest.mark.parametrize("activity", list(Activity))
def test_an_activity_and_an_answer_compare_with_their_texts(activity: Activity) -> None:
    verdict = ask(ComparesWithText(), read_document({"processes": {"a": {"activity": activity.value}}}))
    assert verdict.holds == ("true" if activity is Activity.IDLE else "false")


@pytest.mark.parametrize(
    ("processes", "missing", "code"),
    [({"a": "x", "b": "x"}, [], 0), ({"a": "x", "b": "y"}, [], 1), ({"a": "x"}, ["b"], 3), ({"a": "x", "b": "x"}, ["c"], 0)],
)
def test_the_example_plug_in_is_found_and_evaluated(
    example: Path, processes: dict[str, str], missing: list[str], code: int
) -> None:
    document = {"processes": {name: {"facts": {"choice": value}} for name, value in processes.items()}, "missing": missing}
    command = "from detector.commands.archives.evaluate import evaluate; evaluate()"
    words = ["decided", "-", "--json", "--set", "fact=choice"]
    result = subprocess.run(
        [sys.executable, "-c", command, *words],
        input=json.dumps(document),
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(example), *filter(None, sys.path)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stderr) == (code, "")
    assert json.loads(result.stdout)["predicate"] == "decided"


def test_built_in_predicates_are_found_by_entry_point() -> None:
    for name in predicate_names():
        assert find_predicate(name).name == name


def test_a_package_that_is_installed_later_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    assert "later" not in predicate_names()
    package = tmp_path / "later-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Name: later\nVersion: 1\n")
    (package / "entry_points.txt").write_text("[stilltrue.predicates]\nlater = later:Later\n")
    assert "later" in predicate_names()


def test_a_predicate_that_raises_is_named(installed: dict[str, str]) -> None:
    installed["raises"] = "mine:Raises"
    with pytest.raises(
        PluginError, match=r"^predicate 'raises' failed: RuntimeError: two lines \(test_registry.py:31 in evaluate\)$"
    ):
        ask(find_predicate("raises"), read_document({}))


def test_a_result_that_is_not_a_verdict_is_refused(installed: dict[str, str]) -> None:
    installed["nonsense"] = "mine:AnswersNonsense"
    with pytest.raises(PluginError, match="predicate 'nonsense' returned bool, not a Verdict"):
        ask(find_predicate("nonsense"), read_document({}))


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"holds": True}, "holds=True, not a Holds"),
        ({"witness": None}, "witness=None, not a Witness"),
        ({"snapshot": None}, "snapshot=None, not a SnapshotRef"),
        ({"witness": Witness(kind="k", parties=(), text=3)}, "witness.text=3, not a string"),  # type: ignore[arg-type]
        ({"witness": Witness(kind="k", parties=(7,), text="")}, "witness.parties that is not a tuple of strings"),  # type: ignore[arg-type]
        ({"remainder": {"b", "a"}}, "remainder that is not a tuple of strings"),
        ({"victims": "all"}, "victims that is not a tuple of strings"),
        ({"explanation": None}, "explanation that is not a tuple of strings"),
        ({"until": float("inf")}, "until=inf, not a time in seconds"),
        ({"until": "soon"}, "until='soon', not a time in seconds"),
    ],
)
def test_a_malformed_verdict_is_refused_and_the_value_named(other: dict[str, Any], said: str) -> None:
    with pytest.raises(PluginError) as raised:
        ask(Answers(**other), read_document({}))
    assert str(raised.value) == f"predicate 'answers' returned {said}"


def test_a_well_formed_verdict_is_accepted() -> None:
    assert ask(Answers(until=9.5, remainder=("a",), victims=["a"]), read_document({})).until == 9.5


def test_a_predicate_that_exits_the_program_only_fails(installed: dict[str, str]) -> None:
    installed["ends"] = "mine:EndsTheProgram"
    with pytest.raises(PluginError, match=r"^predicate 'ends' failed: SystemExit: 0 \(test_registry.py:45 in evaluate\)$"):
        ask(find_predicate("ends"), read_document({}))


def test_a_predicate_that_does_not_treat_the_missing_is_not_asked_about_them(installed: dict[str, str]) -> None:
    installed["raises"] = "mine:Raises"
    verdict = ask(find_predicate("raises"), read_document({"missing": ["a"]}))
    assert (verdict.holds, verdict.witness.kind, verdict.decisive) == (Holds.UNDETERMINED, "missing", ("a",))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("mine:Absent", r"predicate 'p' \(mine:Absent\) cannot be created: AttributeError"),
        ("no_such_module:P", r"predicate 'p' \(no_such_module:P\) cannot be created: ModuleNotFoundError"),
        ("mine:NoPredicate", r"predicate 'p' \(mine:NoPredicate\) must have a name and evaluate"),
    ],
)
def test_a_predicate_that_cannot_be_created_is_named_with_its_entry_point(
    installed: dict[str, str], value: str, said: str
) -> None:
    installed["p"] = value
    with pytest.raises(PluginError, match=said):
        find_predicate("p")


def test_an_unknown_name_lists_the_known_ones(installed: dict[str, str]) -> None:
    installed["raises"] = "mine:Raises"
    with pytest.raises(UnknownPredicateError, match="no predicate 'other'; available: raises"):
        find_predicate("other")


def test_without_its_own_metadata_the_detector_says_that_it_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "entry_points", lambda group: ())
    with pytest.raises(UnknownPredicateError, match="stilltrue-detector is not installed for this Python"):
        find_predicate("deadlock")
    with pytest.raises(UnknownPredicateError, match="stilltrue-detector is not installed for this Python"):
        registry.check_installed()


def test_predicates_of_others_do_not_make_the_detector_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "entry_points", lambda group: (EntryPoint("mine", "mine:Mine", group),))
    with pytest.raises(UnknownPredicateError, match="not even deadlock"):
        registry.check_installed()
    monkeypatch.undo()
    registry.check_installed()
