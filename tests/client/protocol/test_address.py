"""Addresses of detectors: which texts are valid, and the agent's error for the others."""

from __future__ import annotations

import logging

import pytest

from stilltrue.protocol.address import is_address
from stilltrue.settings import SettingRefusedError, read_settings


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("detector:7600", True),
        ("[::1]:7600", True),
        ("ipv6:[::1]:7600", True),
        ("127.0.0.1:7600", True),
        ("::1:7600", False),
        ("a:1,fd00::7:7600", False),
        ("a:1,b:2", True),
        ("dns:///a.b:7600", True),
        ("unix:/run/stilltrue.sock", True),
        ("a:7600, b:7600", True),
        ("a:7600,", False),
        ("detector", False),
        ("", False),
        ("http://detector:7600", False),
        ("https://detector:7600", False),
        ("detector:0", False),
        ("detector:65535", True),
        ("detector:65536", False),
        ("a:1,b:99999", False),
    ],
)
def test_an_address_has_a_host_and_a_port(text: str, right: bool) -> None:
    assert is_address(text) is right


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("detector", "is not a valid HOST:PORT"),
        ("detector:99999", "is not a valid HOST:PORT"),
        ("detector:7600,http://other:7600", "is not a valid HOST:PORT"),
        ("http://detector:7600", "is a URL, not HOST:PORT: write detector:7600"),
        ("https://detector:7600/incidents", "is a URL, not HOST:PORT: write detector:7600"),
        ("::1:7600", "is not a valid HOST:PORT; an IPv6 address stands in brackets: write "),
        ("http://detector", "is a URL, not HOST:PORT: write HOST:PORT"),
    ],
)
def test_an_invalid_address_is_reported_at_once(text: str, wrong: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "stilltrue"):
        assert read_settings({}, {"STILLTRUE_DETECTOR": text}).detector == "127.0.0.1:7600"
    (line,) = caplog.messages
    assert "STILLTRUE_DETECTOR" in line
    assert f"{text!r} {wrong}" in line
    with pytest.raises(SettingRefusedError, match=f"detector: .* {wrong}"):
        read_settings({"detector": text}, {})


def test_a_valid_address_is_used_unchanged(caplog: pytest.LogCaptureFixture) -> None:
    assert read_settings({}, {"STILLTRUE_DETECTOR": "dns:///detector:7600, b:7600"}).detector == "dns:///detector:7600, b:7600"
    assert caplog.messages == []
