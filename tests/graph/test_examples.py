"""Runs the examples in docstrings."""

from __future__ import annotations

import doctest
import importlib

import pytest

GRAPH = ("columns", "cycles", "functional_graph", "reachability", "reduction", "remainder", "victims", "witness")
MODULES = (
    *(f"detector.graph.{name}" for name in GRAPH),
    "detector.core.times",
    "detector.drawing.canvas",
    "detector.drawing.exports",
    "detector.ops.address",
)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run(name: str) -> None:
    failed, tried = doctest.testmod(importlib.import_module(name))
    assert tried
    assert not failed
