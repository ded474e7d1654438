"""A detector for the tests of a module, and live HTTP services."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from detector.demo.harness import Harness
from tests.http.cycles import PROGRAMS, Shop, Start


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    with Harness(tmp_path_factory.mktemp("detector")) as harness:
        harness.start_detector("--period-seconds", "0.5", "--lease-seconds", "2", "--forget-seconds", "4")
        yield harness


@pytest.fixture
def start(harness: Harness) -> Iterator[Start]:
    shops: list[Shop] = []

    def begin(program: str, name: str, *arguments: str) -> Shop:
        shops.append(Shop(f"{name}-{os.urandom(3).hex()}", PROGRAMS / program, arguments, harness.detector))
        return shops[-1]

    yield begin
    for shop in shops:
        shop.stop()
