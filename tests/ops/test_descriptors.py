"""The limit on file descriptors is raised as far as allowed, and a low limit is logged."""

from __future__ import annotations

import logging
import resource

import pytest

from detector.ops.logs import Log
from detector.ops.process.file_descriptors import raise_limit

INFINITE = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("soft", "hard", "raised", "said"),
    [
        (256, 1_048_576, 65_536, []),
        (256, INFINITE, 65_536, []),
        (256, 4096, 4096, []),
        (100_000, 1_048_576, 100_000, []),
        (INFINITE, INFINITE, INFINITE, []),
        (64, 64, 64, ["few descriptors"]),
    ],
)
def test_the_descriptor_limit_is_raised_as_far_as_allowed(
    soft: int, hard: int, raised: int, said: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    limits = [soft, hard]
    monkeypatch.setattr(resource, "getrlimit", lambda _: tuple(limits))
    monkeypatch.setattr(resource, "setrlimit", lambda _, both: limits.__setitem__(slice(None), both))
    caplog.set_level(logging.INFO)
    assert raise_limit(Log("stilltrue")) == raised
    assert limits == [raised, hard]
    assert [record.message for record in caplog.records] == said


def test_a_limit_that_may_not_be_raised_is_logged_and_kept(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: int, both: tuple[int, int]) -> None:
        raise ValueError("not allowed")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (2048, 4096))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert raise_limit(Log("stilltrue")) == 2048
    assert "descriptors not raised" in caplog.text
