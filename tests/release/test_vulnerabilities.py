"""Known vulnerabilities are named; the check is skipped with a reason without data, and never passes silently."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from detector.release import vulnerabilities
from detector.release.lock_files import FOLDER, LOCKS
from detector.release.vulnerabilities import known_vulnerabilities, main, pins

PINNED = ["click==8.5.1", "jinja2==2.4"]
KNOWN = {"id": "PYSEC-2014-8", "aliases": ["CVE-2014-0012"], "fix_versions": ["2.7.2"], "description": "..."}


class Index:
    """Answers as pip-audit does, and notes how many pins each question had."""

    def __init__(self, *known: Mapping[str, Any], without: str = "") -> None:
        self.known = known
        self.without = without
        self.asked: list[int] = []

    def __call__(self, pinned: list[str]) -> Mapping[str, Any]:
        self.asked.append(len(pinned))
        answers: list[dict[str, Any]] = []
        for pin in pinned:
            name, version = pin.partition(" ;")[0].split("==")  # a pin may hold for some versions of Python only
            if self.without in ("*", name):
                answers.append({"name": name, "skip_reason": f"{name} not found"})
            else:
                answers.append({"name": name, "version": version, "vulns": self.known if name == "jinja2" else []})
        return {"dependencies": answers, "fixes": []}


def test_known_vulnerabilities_are_named_with_their_fix() -> None:
    assert known_vulnerabilities(PINNED, Index(KNOWN)) == (["jinja2 2.4: PYSEC-2014-8, fixed in 2.7.2"], "")
    assert known_vulnerabilities(PINNED, Index({**KNOWN, "fix_versions": []}))[0] == ["jinja2 2.4: PYSEC-2014-8, not fixed yet"]
    assert known_vulnerabilities(PINNED, Index()) == ([], "")


@pytest.mark.parametrize("accepted", ["PYSEC-2014-8", "CVE-2014-0012"])
def test_an_accepted_vulnerability_is_omitted_by_any_of_its_names(accepted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vulnerabilities, "ACCEPTED", {accepted: "templates are ours alone"})
    assert known_vulnerabilities(PINNED, Index(KNOWN)) == ([], "")


def test_an_index_without_such_data_is_queried_once() -> None:
    index = Index(without="*")
    assert known_vulnerabilities(PINNED, index) == ([], "click not found")
    assert index.asked == [1]


def test_an_unknown_package_hides_none_of_the_others() -> None:
    assert known_vulnerabilities([*PINNED, "ours==1"], Index(KNOWN, without="ours")) == (
        ["jinja2 2.4: PYSEC-2014-8, fixed in 2.7.2"],
        "ours not found",
    )


def test_the_command_reports_found_none_or_skipped(capsys: pytest.CaptureFixture[str]) -> None:
    main(Index())
    assert capsys.readouterr().out.startswith("no known vulnerabilities in the ")
    main(Index(without="*"))
    assert capsys.readouterr().out.startswith("skipped: ")
    with pytest.raises(SystemExit, match="1"):
        main(lambda pinned: {"dependencies": [{"name": "click", "version": "8.5.1", "vulns": [KNOWN]}]})
    assert "PYSEC-2014-8" in capsys.readouterr().out


def test_every_locked_package_is_queried_once_with_its_marker() -> None:
    for name in LOCKS:
        text = (FOLDER / name).read_text()
        blocks = re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)[1:]
        assert pins(text) == [block.splitlines()[0].removesuffix(" \\") for block in blocks]
    assert pins("a==1 ; python_full_version < '3.12' \\\n    --hash=sha256:00\n") == ["a==1 ; python_full_version < '3.12'"]
