"""Settings: every one has bounds, help text and a clear refusal."""

from __future__ import annotations

import asyncio
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from detector.cli import cli
from detector.commands.processes import serve as serve_command
from detector.service.settings import (
    SettingError,
    Settings,
    expectations_from_texts,
    flag,
    predicate_settings_from_texts,
    scope_from_text,
)

BOUNDED = [each for each in fields(Settings) if "low" in each.metadata]


def test_every_setting_has_help_text_and_every_number_bounds() -> None:
    for each in fields(Settings):
        if each.name not in {"scopes", "expected", "predicate_settings"}:
            assert each.metadata["help"]
        if isinstance(each.default, (int, float)) and not isinstance(each.default, bool):
            assert each.metadata["low"] <= each.default <= each.metadata["high"]


@pytest.mark.parametrize("each", BOUNDED, ids=[each.name for each in BOUNDED])
def test_beyond_its_bounds_a_setting_is_refused_by_its_flag(each: Any) -> None:
    for wrong in (each.metadata["low"] - 1, each.metadata["high"] + 1, float("nan")):
        with pytest.raises(SettingError) as refused:
            changed(each.name, wrong)
        assert str(refused.value).startswith(f"{flag(each.name)}: must be between ")
        assert "\n" not in str(refused.value)


def changed(name: str, value: Any) -> Settings:
    values: dict[str, Any] = {name: value}
    return Settings(**values)


def test_one_port_for_grpc_and_http_is_refused() -> None:
    with pytest.raises(SettingError, match="--http-port: 7700 must differ from --port"):
        Settings(port=7700, http_port=7700)
    Settings(port=7700, http_port=7700, http_host="127.0.0.2")
    Settings(port=0, http_port=0)


def test_units_stand_last_in_names() -> None:
    for each in BOUNDED:
        assert each.name.endswith(("port", "_seconds", "_seconds_min", "_seconds_max", "_max")), each.name


def test_a_scope_selects_by_labels() -> None:
    scope = scope_from_text("shop=team=shop,tier=web")
    assert (scope.name, dict(scope.labels)) == ("shop", {"team": "shop", "tier": "web"})


@pytest.mark.parametrize("text", ["", "shop", "shop=", "shop=team", "=team=shop", "a b=team=shop", "shop=team=shop,"])
def test_an_invalid_scope_is_refused(text: str) -> None:
    with pytest.raises(SettingError, match=r"^--scope: "):
        scope_from_text(text)


@pytest.mark.parametrize("texts", [("all=team=x",), ("s=team=x", "s=team=y")])
def test_scopes_have_different_names(texts: tuple[str, ...]) -> None:
    with pytest.raises(SettingError, match="is taken"):
        Settings(scopes=tuple(map(scope_from_text, texts)))


def test_a_scope_states_its_expected_members() -> None:
    found = expectations_from_texts(["5", "shop=web-0,stock,service:prod/orders"])
    assert (found["all"].count, found["shop"].names) == (5, frozenset({"web-0", "stock"}))
    assert found["shop"].services == {"prod/orders"}
    with pytest.raises(SettingError, match=r"^--expect: there is no scope 'shop'"):
        Settings(expected=found)


def test_digits_that_are_not_a_number_are_a_name() -> None:
    assert expectations_from_texts(["shop=\u00b9"])["shop"].names == {"\u00b9"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "-1",
        "1" * 5000,
        "=5",
        "shop=",
        "shop=a,,b",
        "9999999999",
        "service:",
        "service:orders",
        "service:a/b/c",
        "service:../x",
    ],
)
def test_an_invalid_expectation_is_refused(text: str) -> None:
    with pytest.raises(SettingError, match=r"^--expect: "):
        expectations_from_texts([text])


def test_settings_of_predicates() -> None:
    texts = ("token-lost.fact=lease", "token-lost.expected=3", "mine.ratio=0.5")
    assert predicate_settings_from_texts(texts) == {"token-lost": {"fact": "lease", "expected": 3}, "mine": {"ratio": 0.5}}
    with pytest.raises(SettingError, match=r"^--set: the value of token-lost.fact is nested too deeply"):
        predicate_settings_from_texts(["token-lost.fact=" + "[" * 100_000])
    for wrong in ("fact=3", "token-lost.fact", "token-lost.=3", ".fact=3"):
        with pytest.raises(SettingError, match=r"^--set: "):
            predicate_settings_from_texts([wrong])


def test_a_renamed_setting_is_accepted_under_its_old_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Settings] = []
    monkeypatch.setattr(serve_command, "run_service", lambda settings, started: asked.append(settings))
    monkeypatch.setattr(asyncio, "run", lambda none: None)
    environment = {"STILLTRUE_SERVE_DOCUMENTS_MAX": "7"}
    done = CliRunner().invoke(cli, ["serve", "--data", str(tmp_path), "--history-bytes-max", "0"], env=environment)
    assert (done.exit_code, asked[0].archive_bytes_max, asked[0].store_documents_max) == (0, 0, 7)
    assert asked[0].store_bytes_max == Settings().store_bytes_max
    assert "used=--history-bytes-max instead=--archive-bytes-max" in done.stderr
    assert "used=--documents-max instead=--store-documents-max" in done.stderr
