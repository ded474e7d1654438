"""Misspelt environment variables: named with the setting that was meant, and no others."""

from __future__ import annotations

import logging
from dataclasses import fields

import pytest

from stilltrue.protocol.misspelt import misspelt
from stilltrue.settings import Settings, read_settings

KNOWN = [f"STILLTRUE_{each.name.upper()}" for each in fields(Settings)]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("STILLTRUE_DETECTR", "STILLTRUE_DETECTOR"),
        ("STILLTRUE_DETECTOR_URL", "STILLTRUE_DETECTOR"),
        ("STILLTRUE_SERVICE_NAME", "STILLTRUE_SERVICE"),
        ("STILLTRUE_LABEL", "STILLTRUE_LABELS"),
        ("STILLTRUE_TLS_CA", "STILLTRUE_TLS_CA_FILE"),
        ("STILLTRUE_TOKEN", "STILLTRUE_TOKEN_FILE"),
        ("STILLTRUE_ENABLE", "STILLTRUE_ENABLED"),
        ("STILTRUE_DETECTOR", "STILLTRUE_DETECTOR"),
        ("STILL_TRUE_SERVICE", "STILLTRUE_SERVICE"),
        ("stilltrue_detector", "STILLTRUE_DETECTOR"),
    ],
)
def test_a_misspelt_variable_is_named_with_the_one_that_was_meant(name: str, meant: str) -> None:
    assert list(misspelt([name, "PATH"], KNOWN)) == [(name, meant)]


@pytest.mark.parametrize(
    "name",
    [
        *KNOWN,
        "DETECTOR",
        "STILLTRUE_HOME",
        "STILLTRUE_SERVICE_HOST",
        "STILLTRUE_SERVICE_PORT",
        "STILLTRUE_SERVICE_PORT_GRPC",
        "STILLTRUE_PORT",
        "STILLTRUE_PORT_7600_TCP_ADDR",
        "STILLTRUE_DETECTOR_SERVICE_HOST",
        "STILLTRUE_DETECTOR_PORT",
    ],
)
def test_other_variables_and_those_of_kubernetes_are_not_misspelt(name: str) -> None:
    assert not list(misspelt([name], KNOWN))


def test_a_variable_near_one_that_is_set_is_the_programs_own() -> None:
    assert not list(misspelt(["STILLTRUE_DETECTOR", "STILLTRUE_DETECTOR_HOST"], KNOWN))


def test_an_agent_logs_a_misspelt_variable(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "stilltrue"):
        settings = read_settings({"service": "orders"}, {"STILLTRUE_DETECTR": "far:7600", "STILLTRUE_SERVICE_HOST": "10.0.0.1"})
    assert settings.detector == "127.0.0.1:7600"
    assert caplog.messages == ["setting ignored: STILLTRUE_DETECTR is not a setting; did you mean STILLTRUE_DETECTOR?"]
