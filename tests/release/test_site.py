"""The site's own parts: pictures and pages stay within the site, and the reference reads as text."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from detector.service.metrics import Metrics

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The hook of mkdocs, without mkdocs, which is not installed here."""
    for name in ("mkdocs", "mkdocs.structure", "mkdocs.structure.files"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setattr(sys.modules["mkdocs.structure.files"], "File", object, raising=False)
    spec = importlib.util.spec_from_file_location("reference_pages", ROOT / "docs" / "reference_pages.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_pictures_and_pages_stay_in_the_site_and_other_files_lead_to_the_repository(hook: Any) -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri="detector.md"), meta={})
    inside = (
        "![the overview](images/overview.png) ![a graph](deadlock.svg) [agents](agent.md#joining) [one](https://example.org/x)"
    )
    assert hook.on_page_markdown(inside, page) == inside
    assert (
        hook.on_page_markdown("[shop](examples/shop/shop.py)", page) == f"[shop]({hook.REPOSITORY}docs/examples/shop/shop.py)"
    )


def test_what_is_within_an_item_of_a_list_on_github_is_so_on_the_site(hook: Any) -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri="detector.md"), meta={})
    text = "- one\n  goes on\n  - within\n\n  | a |\n  |---|\n\n  ```python\n  if x:\n      y\n  ```\n\n    no list\n"
    inside, _, outside = hook.on_page_markdown(text + "\nText.\n\n  as it is\n", page).partition("Text.")
    assert inside.startswith(
        "- one\n    goes on\n    - within\n\n    | a |\n    |---|\n\n    ```python\n    if x:\n        y\n    ```\n"
    )
    assert outside == "\n\n  as it is\n"
    assert hook.on_page_markdown("```sh\n  a\n- b\n  c\n```\n  d\n", page) == "```sh\n  a\n- b\n  c\n```\n  d\n"


def test_an_item_that_follows_a_paragraph_on_github_does_so_on_the_site(hook: Any) -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri="detector.md"), meta={})
    assert hook.on_page_markdown("One of:\n- a\n- b\n", page) == "One of:\n\n- a\n- b\n"
    assert hook.on_page_markdown("1. a\n\n   more\n   of it\n2. b\n3. c\n", page) == (
        "1. a\n\n      more\n      of it\n\n2. b\n3. c\n"
    )
    for as_it_is in ("- a\n- b\n", "Text:\n\n- a\n- b\n", "```\none\n- a\n```\n", "- a\n\n- b\n"):
        assert hook.on_page_markdown(as_it_is, page) == as_it_is


def test_links_between_generated_pages_stay_in_the_site(hook: Any) -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri="reference/settings.md"), meta={})
    text = "\n".join(hook.settings())
    assert "(commands.md#stilltrue-serve)" in hook.on_page_markdown(text, page)


def test_only_a_page_with_sections_has_a_list_of_them(hook: Any) -> None:
    whole, divided = (SimpleNamespace(file=SimpleNamespace(src_uri="a.md"), meta={}) for _ in range(2))
    hook.on_page_markdown("# A\n\ntext\n", whole)
    hook.on_page_markdown("# A\n\n## B\n\ntext\n", divided)
    assert (whole.meta, divided.meta) == ({"hide": ["toc"]}, {})


def test_every_picture_of_the_docs_is_in_the_site(hook: Any) -> None:
    for path in sorted((ROOT / "docs").rglob("*.md")):
        page = SimpleNamespace(file=SimpleNamespace(src_uri=path.relative_to(ROOT / "docs").as_posix()), meta={})
        shown = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", hook.on_page_markdown(path.read_text(), page))
        assert not [target for target in shown if target.startswith(hook.REPOSITORY)]


def test_names_in_code_are_not_broken_at_a_hyphen(hook: Any) -> None:
    unbroken = '<span style="white-space: nowrap">--give-up-seconds</span>'
    assert hook.on_page_content("<p><code>serve --give-up-seconds 3</code></p>") == f"<p><code>serve {unbroken} 3</code></p>"
    for whole in (
        "<pre><code>stilltrue serve --port 7700\n</code></pre>",
        f"<code>--{'long' * 20}</code>",
        "<p>well-known</p>",
    ):
        assert hook.on_page_content(whole) == whole


def test_a_long_name_breaks_after_an_underscore(hook: Any) -> None:
    shown = hook.on_page_content("<td><code>stilltrue_members{state}</code></td><pre><code>a_b\n</code></pre>")
    assert shown == "<td><code>stilltrue_<wbr>members{<wbr>state}</code></td><pre><code>a_b\n</code></pre>"


def test_flags_in_the_settings_reference_are_code(hook: Any) -> None:
    assert "needs TLS or `--allow-plaintext`" in "\n".join(hook.settings())


def test_the_python_reference_links_to_the_pages_that_it_names(hook: Any) -> None:
    assert "[docs/agent.md](../agent.md)" in "\n".join(hook.python())


def test_no_page_asks_another_host(hook: Any) -> None:
    """The theme's script looks for this attribute, and asks api.github.com for the repository behind the link."""
    link = '<a href="https://github.com/stilltrue/stilltrue" class="md-source" data-md-component="source">'
    for made in (
        hook.on_post_page(link, page=None, config=None),
        hook.on_post_template(link, template_name="404.html", config=None),
    ):
        assert "data-md-component" not in made
        assert made.startswith('<a href="https://github.com/stilltrue/stilltrue"')


def test_the_search_index_is_also_a_script(hook: Any, tmp_path: Path) -> None:
    """The theme's script reads it from a disk, and ends in an error if it is not there."""
    (tmp_path / "search").mkdir()
    (tmp_path / "search" / "search_index.json").write_text('{"docs": []}')
    hook.on_post_build(config=SimpleNamespace(site_dir=str(tmp_path)))
    assert (tmp_path / "search" / "search_index.js").read_text() == 'var __index = {"docs": []}'


def test_the_python_reference_is_prose_that_wraps(hook: Any) -> None:
    text = "\n".join(hook.python())
    assert (
        "\nWrap `channel` (of grpc or grpc.aio) so that its calls are recorded; `target` is its address in reports.\n" in text
    )
    assert "\n    labels: Mapping[str, str] | None = None,\n" in text
    assert "``" not in text.replace("```", "")
    assert ":class:" not in text
    code = re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    assert max(len(line) for block in code for line in block.splitlines()) <= hook.COLUMNS


def test_the_python_reference_has_what_its_functions_return(hook: Any) -> None:
    text = "\n".join(hook.python())
    for field in ("holds", "core", "victims", "coverage"):
        assert f"\n{field}: " in text.partition("### Verdict\n")[2].partition("###")[0]
    for name in ("Step.carries", "Step.with_reply", "Answering.stop", "agent.aio.Lock"):
        assert f"\n#### {name}\n" in text
    assert '`TRUE` (`"true"`), `FALSE` (`"false"`), `UNDETERMINED` (`"undetermined"`)' in text
    for internal in ("Step.spend", "Agent.looker", "Agent.http_replacements", "Agent.answer_looks_with"):
        assert internal not in text


def test_the_python_reference_says_where_a_detector_is_looked_for_and_how_an_answer_is_read(hook: Any) -> None:
    text = "\n".join(hook.python())
    detector = text.partition("\n## Detector\n")[2].partition("### Detector.ask")[0]
    assert "by default `STILLTRUE_DETECTOR` or 127.0.0.1:7600" in detector
    assert "Raises `stilltrue.SettingRefusedError`" in text.partition("\n## Agent\n")[2].partition("###")[0]
    assert "from stilltrue.model import Holds" in text.partition("\n## ")[0]
    assert "As a condition by itself, each is true" in text.partition("### Holds\n")[2].partition("###")[0]


def test_the_settings_reference_shows_defaults_and_bounds(hook: Any) -> None:
    rows = [line for line in "\n".join(hook.settings()).splitlines() if line.startswith("| `--")]
    assert (
        "| `--lease-seconds` | how long a member may be silent before it counts as lost (default `5`, from 0.1 to 3600) |"
        in rows
    )
    assert any(row.startswith("| `--base-path` | path under which ") and row.endswith("of every link |") for row in rows)
    assert not [row for row in rows if "``" in row or "e+" in row or "None" in row]


def test_the_metrics_reference_has_the_names_and_labels_of_the_metrics_page(hook: Any) -> None:
    detector, _, sidecar = "\n".join(hook.metrics()).partition("\n## Of the sidecar\n")
    rows = [line.split("`")[1] for line in detector.splitlines() if line.startswith("| `")]
    assert {
        "stilltrue_predicate_state{predicate,scope,state}",
        "stilltrue_snapshots_total{outcome}",
        "stilltrue_build_info",
    } <= {*rows}
    shown = {line.split()[2] for line in Metrics().text().decode().splitlines() if line.startswith("# TYPE ")}
    assert {row.partition("{")[0] for row in rows} == shown
    assert "\n| `stilltrue_sidecar_workers` | gauge |" in sidecar
    assert "\n| `stilltrue_sidecar_outbound_calls_total{caller}` | counter |" in sidecar


def test_the_commands_reference_has_the_commands_of_groups(hook: Any) -> None:
    text = "\n".join(hook.commands())
    assert "\n## stilltrue probe redis\n" in text
    assert "Usage: stilltrue probe postgres [OPTIONS]" in text
    assert "\n## stilltrue ask\n\n```text\nUsage: stilltrue ask [OPTIONS] PREDICATE\n" in text
