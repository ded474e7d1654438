"""A hook of mkdocs: makes the reference pages from the code, and links that leave docs/ point to the repository."""

from __future__ import annotations

import inspect
import posixpath
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
from mkdocs.structure.files import File
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.metrics import MetricWrapperBase

import stilltrue
from detector.cli import COMMANDS, cli
from detector.service.metrics import Metrics
from detector.service.settings import Settings
from detector.sidecar.status import SidecarCollector
from stilltrue.lock_factory import TaskLocks
from stilltrue.model import BlindSpot, Coverage, Evidence, Holds, SnapshotRef, Verdict, Witness
from stilltrue.protocol.step import Step
from stilltrue.runtime.declared.answering import Answering

ROOT = Path(__file__).resolve().parents[1]
REPOSITORY = "https://github.com/stilltrue/stilltrue/blob/main/"
COLUMNS = 78
"""Width of the commands' help: at 1280 pixels the page's code blocks show no more without scrolling."""


HYPHENATED = re.compile(r"[^\s&]*-[^\s&]*")
JOINT = re.compile(r"(?<=\w)_(?=\w)|[{,](?=\w)")
FLAG = re.compile(r"(?<![\w`-])--[a-z][a-z-]*[a-z]")
UNBROKEN_MAX = 32
"""Characters of a name that a phone still shows on one line."""


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages."""
    for name, made in PAGES.items():
        files.append(File.generated(config, f"reference/{name}.md", content="\n".join(made()) + "\n"))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links to files that are not part of the site point to the repository; a page without sections has no list of them."""
    if not re.search("^## ", markdown, re.MULTILINE):
        page.meta.setdefault("hide", ["toc"])
    folder = posixpath.dirname(page.file.src_uri)

    def outside(link: re.Match[str]) -> str:
        target, _, anchor = link[2].partition("#")
        if "://" in target or not target or target.startswith("mailto:"):
            return link[0]
        path = posixpath.normpath(posixpath.join("docs", folder, target))
        inside = path.startswith("docs/") and (ROOT / path).is_file() and path.endswith((".md", ".svg", ".png"))
        inside = inside or path in {f"docs/reference/{name}.md" for name in PAGES}
        return link[0] if inside else f"{link[1]}{REPOSITORY}{path}{'#' + anchor if anchor else ''})"

    return re.sub(r"(\]\()([^)\s]+)\)", outside, _deepened(markdown))


def _deepened(markdown: str) -> str:
    """Double the indents within lists: two spaces put a list or a table into an item on GitHub, Python-Markdown needs four.

    On GitHub an item may follow a paragraph without an empty line; in Python-Markdown it would be part of the paragraph.
    """
    lines, in_list, fence, in_paragraph = [""], False, None, False
    for line in markdown.split("\n"):
        text = line.lstrip(" ")
        indent = len(line) - len(text)
        if text and not indent and fence is None:
            in_list = re.match(r"([-*]|\d+\.) ", text) is not None
            lines += [""] if in_list and in_paragraph else []
            in_paragraph = not in_list
        elif not text:
            in_paragraph = False
        elif in_list and fence is None and not lines[-1]:
            in_paragraph = re.match(r"([-*]|\d+\.) |[|`]", text) is None
        more = (indent if fence is None else fence) if in_list and text else 0
        if text.startswith("```"):
            fence = more if fence is None else None
        lines.append(" " * more + line)
    return "\n".join(lines[1:])


def on_page_content(html: str, **_: Any) -> str:
    """Names in code: ``--give-up-seconds`` is not broken at a hyphen, ``stilltrue_members_lost`` only after an underscore."""

    def unbroken(name: re.Match[str]) -> str:
        return f'<span style="white-space: nowrap">{name[0]}</span>' if len(name[0]) <= UNBROKEN_MAX else name[0]

    def shown(code: re.Match[str]) -> str:
        return f"<code>{JOINT.sub(lambda joint: f'{joint[0]}<wbr>', HYPHENATED.sub(unbroken, code[1]))}</code>"

    return re.sub(r"<code>([^<\n]*)</code>", shown, html)


def on_post_page(output: str, **_: Any) -> str:
    """The theme would ask GitHub's API for the stars of the repository, in each reader's browser."""
    return output.replace('data-md-component="source"', "")


def on_post_template(output_content: str, **_: Any) -> str:
    """The same for pages that are not in the navigation: 404.html."""
    return on_post_page(output_content)


def on_post_build(config: Any, **_: Any) -> None:
    """Write the search index as a script, too: a page that is read from a disk may load no JSON."""
    search = Path(config.site_dir) / "search"
    (search / "search_index.js").write_text(f"var __index = {(search / 'search_index.json').read_text()}")


def commands() -> Iterator[str]:
    """Every command with its flags, as its help says."""
    yield "# Commands\n\nWhat `stilltrue COMMAND --help` prints.\n"
    root = click.Context(cli, info_name="stilltrue", **{**cli.context_settings, "max_content_width": COLUMNS})
    for name in COMMANDS:
        command = cli.get_command(root, name)
        if command is not None:
            yield from _help(command, name, root)


def _help(command: click.Command, name: str, parent: click.Context) -> Iterator[str]:
    """The help of a command, then of each of its own commands."""
    context = click.Context(command, info_name=name, parent=parent, terminal_width=COLUMNS)
    yield f"## {context.command_path}\n\n```text\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            if found is not None:
                yield from _help(found, each, context)


def settings() -> Iterator[str]:
    """Every setting with its default and bounds."""
    yield "# Settings of the detector\n\nFlags of `stilltrue serve`. Each is also an environment variable: "
    yield "`STILLTRUE_SERVE_PERIOD_SECONDS` for `--period-seconds`. `--scope`, `--set` and `--expect` may be repeated, "
    yield "and are on [the page of commands](commands.md#stilltrue-serve).\n"
    yield "| flag | what |\n|---|---|"  # a third column would not fit on a telephone
    for field in fields(Settings):
        if "help" in field.metadata:
            default = [] if field.default in ("", None, False) else [f"default `{_plain(field.default)}`"]
            bounds = [
                f"{word} {_plain(field.metadata[name])}"
                for name, word in (("low", "from"), ("high", "to"))
                if name in field.metadata
            ]
            further = ", ".join([*default, *([" ".join(bounds)] if bounds else [])])
            text = FLAG.sub(lambda flag: f"`{flag[0]}`", _cell(field.metadata["help"])) + (f" ({further})" if further else "")
            yield f"| `--{field.name.replace('_', '-')}` | {text} |"


def metrics() -> Iterator[str]:
    """Every metric of the detector and of the sidecar."""
    yield "# Metrics\n\n## Of the detector\n\nAt `/metrics` on its HTTP port (7601).\n\n| metric | kind | what |\n|---|---|---|"
    made = Metrics()
    registry = next(value for value in vars(made).values() if isinstance(value, CollectorRegistry))
    labelled = (value for value in vars(made).values() if isinstance(value, MetricWrapperBase))
    labels = {metric._name: ",".join(metric._labelnames) for metric in labelled}  # noqa: SLF001 - it has no public name for them
    for family in sorted(registry.collect(), key=lambda family: family.name):
        yield _metric(family, labels.get(family.name, ""))
    yield "\n## Of the sidecar\n\nAt `/metrics` on its admin port (7602).\n\n| metric | kind | what |\n|---|---|---|"
    idle = SimpleNamespace(
        pool=SimpleNamespace(counts=(0, 0), size=0), inbound=0, callers=Counter(), distrusted=(), long_unattributed=()
    )
    agent = SimpleNamespace(live=SimpleNamespace(faults=0, dropped=0))
    for family in sorted(SidecarCollector(agent, idle, lambda: 0).collect(), key=lambda family: family.name):
        yield _metric(family, ",".join(sorted({label for sample in family.samples for label in sample.labels})))
    yield "\n## Of others\n\n[Collectors and the assembly](../scale-out.md#metrics-and-alerts), "
    yield "[streams](../pipeline.md#streaming)."


def _metric(family: Metric, labels: str) -> str:
    """The row of a metric, named as Prometheus sees it."""
    name = family.name + {"counter": "_total", "info": "_info"}.get(family.type, "")
    return f"| `{name}{{{labels}}}` | {family.type} | {_cell(family.documentation)} |".replace("{}", "")


def python() -> Iterator[str]:
    """The public names of the agent."""
    yield f"# Python\n\nThe public names of `stilltrue`. What a verdict consists of is in `stilltrue.model`:\n\n{ASKING}"
    for name in sorted(stilltrue.__all__):
        thing = getattr(stilltrue, name)
        if callable(thing):
            error = inspect.isclass(thing) and issubclass(thing, Exception)
            yield f"## {name}\n"
            yield from [] if error else [_code(name, inspect.signature(thing))]
            yield _prose(thing)
            yield from [_prose(vars(thing)["__init__"])] if not error and "__init__" in vars(thing) else []
            yield from _methods(name, thing, INTERNAL.get(name, ()))
    yield "## What these return\n"
    for name, kind, hidden in RETURNED:
        yield f"### {name}\n"
        yield _prose(kind)
        if is_dataclass(kind) and not hidden:
            yield "\n".join(["```python", *(f"{one.name}: {one.type}" for one in fields(kind)), "```\n"])
        if issubclass(kind, Enum):
            yield ", ".join(f'`{one.name}` (`"{one.value}"`)' for one in kind) + "\n"
        yield from _methods(name, kind, hidden, "####")


def _methods(name: str, kind: Any, hidden: tuple[str, ...] = (), heading: str = "###") -> Iterator[str]:
    """The public methods of a class, except those that are only for the agent itself."""
    for method, function in vars(kind).items() if inspect.isclass(kind) else ():
        if not method.startswith("_") and method not in hidden and inspect.isfunction(function) and function.__doc__:
            yield f"{heading} {name}.{method}\n\n{_code(method, inspect.signature(function))}\n{_prose(function)}"


def _code(name: str, signature: inspect.Signature) -> str:
    """A call, without ``self`` and without the quotes of annotations; a long one has a line for each parameter."""
    shown = [one for one in signature.parameters.values() if one.name != "self"]
    text = _unquoted(name + str(signature.replace(parameters=shown)))
    if len(text) > COLUMNS:
        keywords = [at for at, one in enumerate(shown) if one.kind is inspect.Parameter.KEYWORD_ONLY]
        lines = [_unquoted(str(one)) for one in shown]
        if keywords and all(one.kind is not inspect.Parameter.VAR_POSITIONAL for one in shown):
            lines.insert(keywords[0], "*")
        end = _unquoted(str(signature.replace(parameters=[])).removeprefix("()"))
        text = "\n".join([f"{name}(", *(f"    {line}," for line in lines), f"){end}"])
    return f"```python\n{text}\n```\n"


def _unquoted(text: str) -> str:
    return re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)


def _prose(thing: Any) -> str:
    """A docstring as Markdown: roles and literals as code, titles of sections in bold, parameters as a list."""
    text = re.sub(r":[a-z]+:`~?([^`]*)`|``([^`]*)``", lambda found: f"`{found[1] or found[2]}`", inspect.getdoc(thing) or "")
    text = re.sub(r"(?<![\w(/])docs/([\w-]+)\.md", r"[docs/\1.md](../\1.md)", text)
    text = re.sub(r"^(\w+)\n-{3,}\n", r"\n**\1**\n\n", text, flags=re.MULTILINE)
    text = re.sub(
        r"^(\w[\w, ]*) : (.*(?:\n {4}.*)*)", lambda one: f"- `{one[1]}`: {' '.join(one[2].split())}", text, flags=re.MULTILINE
    )
    return text + "\n"


def protocol() -> Iterator[str]:
    """The protobuf files."""
    yield "# Protocol\n\nThe one source of the wire format. Changes are additive only.\n"
    for path in sorted((ROOT / "protos" / "stilltrue" / "v1").glob("*.proto")):
        yield f"## {path.name}\n\n```protobuf\n{path.read_text().strip()}\n```\n"


def _plain(value: Any) -> str:
    """A number without an exponent, or without a fraction of zero."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


ASKING = """```python
import stilltrue
from stilltrue.model import Holds

with stilltrue.Detector() as detector:
    verdict = detector.ask("deadlock")
if verdict.holds == Holds.TRUE:
    print(verdict.core, verdict.witness.text)
```
"""
INTERNAL = {"Agent": ("answer_looks_with", "http_replacements", "looker")}
"""Public methods that only Stilltrue's own shells, sidecar and probes call."""
RETURNED: tuple[tuple[str, type, tuple[str, ...]], ...] = (
    ("agent.aio", TaskLocks, ()),
    ("Step", Step, ("spend",)),
    ("Answering", Answering, ()),
    ("Verdict", Verdict, ()),
    ("Holds", Holds, ()),
    ("Witness", Witness, ()),
    ("SnapshotRef", SnapshotRef, ()),
    ("Evidence", Evidence, ()),
    ("Coverage", Coverage, ()),
    ("BlindSpot", BlindSpot, ()),
)
"""What users get from the public names: its name on the page, and methods that are not for them."""
PAGES = {"commands": commands, "settings": settings, "metrics": metrics, "python": python, "protocol": protocol}
