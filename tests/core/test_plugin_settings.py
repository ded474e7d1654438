"""Settings of predicates: converted as their class expects, or rejected with one line that says what is valid."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import Enum
from importlib.metadata import EntryPoint
from typing import Any, Literal

import pytest
from click.testing import CliRunner

from detector.commands.archives.evaluate import evaluate
from detector.commands.processes.serve import serve
from detector.core import registry
from detector.core.plugin_settings import SettingError, convert_settings
from detector.core.registry import RefusedSettingError, check_settings, find_predicate
from detector.core.snapshot import Snapshot
from stilltrue.model import Verdict


class Hue(Enum):
    RED = "red"
    BLUE = "blue"


class Picky:
    """Takes one setting of each kind.

    Parameters
    ----------
    ratio : the share
        of those who agree. Between 0 and 1.
    rounds, limit : how often.
    """

    name = "picky"

    def __init__(
        self,
        *,
        ratio: float = 0.5,
        rounds: int = 3,
        limit: int | None = None,
        strict: bool = False,
        fact: str = "vote",
        names: Sequence[str] = (),
        hue: Hue = Hue.RED,
        mode: Literal["all", "any"] = "all",
        whatever: Any = None,
    ) -> None:
        if ratio > 1:
            raise ValueError("ratio must be\nat most 1")
        self.given = (ratio, rounds, limit, strict, fact, names, hue, mode, whatever)

    def evaluate(self, snapshot: Snapshot) -> Verdict:
        raise NotImplementedError


class Loose:
    """Accepts any setting."""

    name = "loose"

    def __init__(self, **settings: object) -> None:
        self.settings = settings

    def evaluate(self, snapshot: Snapshot) -> Verdict:
        raise NotImplementedError


class Broken(Loose):
    """Cannot be constructed."""

    def __init__(self) -> None:
        raise RuntimeError("no database")


@pytest.fixture
def _plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Picky, Loose and Broken are installed, and nothing else."""

    def found(*, group: str, name: str | None = None) -> list[EntryPoint]:
        each = {"picky": "Picky", "loose": "Loose", "broken": "Broken"}
        return [EntryPoint(key, f"mine:{value}", group) for key, value in each.items() if name in (None, key)]

    monkeypatch.setattr(registry, "entry_points", found)
    monkeypatch.setitem(sys.modules, "mine", sys.modules[__name__])


@pytest.mark.parametrize(
    ("name", "given", "taken"),
    [
        ("ratio", 1, 1),
        ("ratio", 0.25, 0.25),
        ("rounds", 7, 7),
        ("limit", None, None),
        ("limit", 3, 3),
        ("strict", True, True),
        ("fact", "lease", "lease"),
        ("fact", 3, "3"),
        ("fact", True, "true"),
        ("names", ["a", "b"], ["a", "b"]),
        ("names", "a", ["a"]),
        ("hue", "blue", Hue.BLUE),
        ("mode", "any", "any"),
        ("whatever", {"a": [1]}, {"a": [1]}),
    ],
)
def test_a_value_of_the_right_type_is_accepted(name: str, given: object, taken: object) -> None:
    assert convert_settings(Picky, {name: given}) == {name: taken}


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("ratio", "banana", 'must be a number (the share of those who agree), not "banana"; for example ratio=0.5'),
        ("ratio", True, "must be a number (the share of those who agree), not true"),
        ("ratio", float("nan"), "must be a number (the share of those who agree), not NaN"),
        ("rounds", 1.5, "must be an integer (how often), not 1.5; for example rounds=3"),
        ("limit", "one", 'must be an integer or null (how often), not "one"; for example limit=7'),
        ("strict", 1, "must be true or false, not 1; for example strict=false"),
        ("fact", ["x"], 'must be a string, not ["x"]; for example fact=vote'),
        ("names", [1, {}], 'must be a list, each item a string, not [1, {}]; for example names=["name"]'),
        ("hue", "green", 'must be "red" or "blue", not "green"'),
        ("mode", "some", 'must be "all" or "any", not "some"; for example mode=all'),
        ("rounds", "x" * 99, "..."),
    ],
)
def test_a_value_of_another_type_is_refused_with_the_valid_ones(name: str, given: object, said: str) -> None:
    with pytest.raises(SettingError) as refused:
        convert_settings(Picky, {name: given})
    assert str(refused.value).startswith(f"setting {name} must be ")
    assert said in str(refused.value)
    assert len(str(refused.value)) < 200


def test_an_unknown_setting_is_refused_with_the_known_ones() -> None:
    with pytest.raises(SettingError, match=r"no setting 'ratoi' \(did you mean ratio\?\); available: ratio, rounds, limit"):
        convert_settings(Picky, {"ratoi": 1})
    with pytest.raises(SettingError, match="it takes no settings, but 'a' was given"):
        convert_settings(Broken, {"a": 1})
    assert convert_settings(Loose, {"a": 1}) == {"a": 1}


@pytest.mark.usefixtures("_plugins")
def test_a_plug_ins_settings_are_checked_and_its_own_refusal_is_one_line() -> None:
    with pytest.raises(RefusedSettingError, match=r"^predicate 'picky': setting rounds must be an integer"):
        find_predicate("picky", {"rounds": "many"})
    with pytest.raises(RefusedSettingError, match=r"^predicate 'picky': ratio must be at most 1$"):
        find_predicate("picky", {"ratio": 2})
    assert find_predicate("picky", {"names": "a"}).given[5] == ["a"]  # type: ignore[attr-defined]


@pytest.mark.usefixtures("_plugins")
def test_settings_are_checked_first_and_a_broken_plug_in_affects_only_itself() -> None:
    check_settings({"picky": {"ratio": 0.1}, "loose": {"a": 1}, "broken": {}})
    with pytest.raises(RefusedSettingError):
        check_settings({"broken": {}, "picky": {"ratio": []}})


DOCUMENT = '{"processes": {"a": {"activity": "idle", "facts": {"token": 1}}}}'
SAID = "predicate 'token-lost': setting expected must be a number (the expected total, at least 0), not \"banana\""


@pytest.mark.parametrize("by", ["flag", "environment"])
def test_evaluate_reports_a_bad_setting_in_one_line(by: str) -> None:
    words, env = (["--set", "expected=banana"], {}) if by == "flag" else ([], {"STILLTRUE_SET": "expected=banana"})
    result = CliRunner().invoke(evaluate, ["token-lost", "-", *words], input=DOCUMENT, env=env)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"stilltrue: {SAID}; for example expected=1\n"


@pytest.mark.parametrize("by", ["flag", "environment"])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("token-lost.expected=banana", SAID),
        ("token-lots.expected=1", "no predicate 'token-lots' (did you mean token-lost?); available: deadlock"),
    ],
)
def test_serve_reports_a_bad_setting_before_it_starts(by: str, text: str, said: str) -> None:
    words, env = (["--set", text], {}) if by == "flag" else ([], {"STILLTRUE_SERVE_SET": text})
    result = CliRunner().invoke(serve, words, env=env)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"stilltrue: --set: {said}")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("predicate", "text", "said"),
    [
        ("token-lost", "expected=-1", "setting expected must be at least 0"),
        ("deadlock", "victims=oldest", "setting victims must be one of least-work, lowest-priority, youngest, not 'oldest'"),
        ("deadlock", "never={}", "setting never must be a list, each item a string"),
        ("phase-ended", "phase=1.5", "setting phase must be an integer or null"),
        ("gridlock", "until=now", "it takes no settings, but 'until' was given"),
        ("lost-message", "snet=out", "it has no setting 'snet' (did you mean sent?)"),
    ],
)
def test_the_built_in_predicates_describe_their_settings(predicate: str, text: str, said: str) -> None:
    result = CliRunner().invoke(evaluate, [predicate, "-", "--set", text], input=DOCUMENT)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"stilltrue: predicate {predicate!r}: {said}")
    assert result.stderr.count("\n") == 1
