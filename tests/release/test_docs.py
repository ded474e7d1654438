"""The documentation: commands and flags exist, snippets compile with existing imports, links resolve."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path

import click
import pytest

from detector.cli import COMMANDS, cli
from detector.commands.live import doctor
from stilltrue.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), ROOT / "clients" / "python" / "README.md"])
GLOBAL = {"--help", "--version", "-h"}


def fenced(page: Path, *languages: str) -> Iterator[str]:
    """The code blocks of a page in one of the languages ('' for none)."""
    for language, code in re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL):
        if language in languages:
            yield code


def commands(page: Path) -> Iterator[list[str]]:
    """Each call of ``stilltrue`` in a page's shell blocks, as words."""
    for code in fenced(page, "", "sh", "console", "text"):
        for line in code.replace("\\\n", " ").splitlines():
            called = re.match(r"(?:\$ )?(?:[A-Z_]+=\S+ )*(?:kubectl .* -- )?stilltrue (.+)", line.strip())
            if called:
                words = shlex.split(re.split(r" [|>&;]| {2,}", called[1])[0], comments=True)
                yield words


def flags_of(name: str, rest: list[str]) -> set[str]:
    """The flags of a command; of one that has commands of its own, those of the one that is called."""
    command = cli.get_command(click.Context(cli), name)
    if isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        command = command.get_command(click.Context(command), rest[0])
    assert command is not None, f"no command {name} {rest}"
    return {flag for each in command.params for flag in (*each.opts, *each.secondary_opts)} | GLOBAL


def test_commands_in_the_docs_are_found() -> None:
    assert ["ask", "deadlock"] in list(commands(ROOT / "README.md"))
    assert sum(len(list(commands(page))) for page in PAGES) >= 50


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_of_a_page_exists_with_its_flags(page: Path) -> None:
    for words in commands(page):
        name, *rest = words
        if name in GLOBAL or name.isupper():
            continue
        assert name in COMMANDS, words
        if "--" in rest:
            rest = rest[: rest.index("--")]
        used = {word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)}
        assert used <= flags_of(name, rest), words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_snippet_of_a_page_compiles_with_existing_imports(page: Path) -> None:
    for code in fenced(page, "python"):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0].startswith("stilltrue"):
                module = importlib.import_module(node.module)
                assert [name.name for name in node.names if not hasattr(module, name.name)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_that_need_the_tests_use_the_environment_of_the_checkout(page: Path) -> None:
    bare = r"(?<![\w./-])(?:python3? (?:-m tests\.|tests/)|pytest tests/)\S+"
    assert re.findall(bare, page.read_text()) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_resolves(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        if "://" in path or path.startswith(("reference/", "mailto:")):
            continue
        found = page if not path else page.parent / path
        assert found.exists(), f"{page.name}: {target}"
        if anchor and found.suffix == ".md":
            assert anchor in anchors(found), f"{page.name}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_heading_of_a_page_is_there_twice(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = [heading.lower() for heading in re.findall(r"^#+ (.+)", text, flags=re.MULTILINE)]
    assert {heading for heading in headings if headings.count(heading) > 1} == set()


def test_every_section_that_the_doctor_names_is_there() -> None:
    texts = (*(cure for _, cure in doctor.CURES), doctor.LOST)
    named = [each for text in texts for each in re.findall(r"(docs/[a-z-]+\.md), '([^']+)'", text)]
    assert len(named) >= 4
    for page, section in named:
        assert re.search(rf"^#+ {re.escape(section)}$", (ROOT / page).read_text(), flags=re.MULTILINE), (page, section)


def test_the_agents_page_lists_every_setting() -> None:
    section = (ROOT / "docs" / "agent.md").read_text().partition("\n## Settings\n")[2].partition("\n## ")[0]
    listed = {name for row in re.findall(r"^\| (`.*?) \|", section, flags=re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert listed == {each.name for each in fields(Settings)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_module_and_test_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text()
    assert [name for name in re.findall(r"`((?:[\w-]+/)*[\w-]+\.(?:py|proto|jinja))`", text) if not there(f"/{name}")] == []
    tested = set(re.findall(r"`(test_\w+)`", text))
    assert {name for name in tested if f"def {name}(" not in all_tests() and not there(f"/{name}.py")} == set()


def test_the_modules_of_the_graph_are_there() -> None:
    table = re.findall(r"^\| (`\w+`.*?) \|", (ROOT / "docs" / "graph.md").read_text(), flags=re.MULTILINE)
    named = {name for cell in table for name in re.findall(r"`(\w+)`", cell)}
    there = {path.stem for path in (ROOT / "detector" / "graph").glob("*.py")}
    assert len(named) > 10
    assert named <= there


def test_the_runbook_of_refused_reports_has_every_reason_and_no_other() -> None:
    source = "\n".join(path.read_text() for path in (ROOT / "detector" / "service").rglob("*.py"))
    raised = set(re.findall(r"RefusedError\(grpc\.StatusCode\.\w+, .*\"(\w+)\"\)", source))
    counted = {"contradictory", "unauthenticated", "permission_denied"}
    page = (ROOT / "docs" / "runbooks" / "StilltrueReportsRefused.md").read_text()
    listed = {name for row in re.findall(r"^\| (`.*?) \|", page, flags=re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert listed - {"reason"} == raised | counted


@cache
def all_files() -> tuple[str, ...]:
    rooms = ("clients", "detector", "docs", "helm", "protos", "tests")
    return tuple(f"/{path.relative_to(ROOT)}" for room in rooms for path in (ROOT / room).rglob("*.*"))


@cache
def all_tests() -> str:
    return "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))


def there(end: str) -> bool:
    return any(path.endswith(end) for path in all_files())


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and mkdocs make them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", re.sub(r"[`*]", "", each)).strip().lower()) for each in headings}
