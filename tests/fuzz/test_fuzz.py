"""The short form of the fuzzers: each reader of untrusted input, on the corpus, hypothesis data and corrupted corpus."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.targets import TARGETS, run

CORPUS = Path(__file__).with_name("corpus")
SHORT = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)


def corpus(name: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted((CORPUS / name).glob("*"))]


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_is_accepted_or_refused(name: str) -> None:
    for data in corpus(name):
        run(name, data)


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_any_bytes_are_accepted_or_refused(name: str) -> None:
    @SHORT
    @given(st.binary(max_size=400))
    def any_bytes(data: bytes) -> None:
        run(name, data)

    any_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in TARGETS if corpus(name)])
def test_corrupted_valid_input_is_accepted_or_refused(name: str) -> None:
    good = corpus(name)

    @SHORT
    @given(st.sampled_from(good), st.integers(0, 2000), st.integers(0, 40), st.binary(max_size=12))
    def spoilt(data: bytes, at: int, taken: int, put: bytes) -> None:
        place = at % (len(data) + 1)
        run(name, data[:place] + put + data[place + taken :])

    spoilt()


def test_every_reader_has_a_corpus() -> None:
    assert {path.name for path in CORPUS.iterdir()} == set(TARGETS)
