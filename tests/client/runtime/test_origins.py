"""Whose code a function is: the program's own, or that of an installed package, which may have made it from text."""

from __future__ import annotations

from types import CodeType
from typing import Any

import pytest

from stilltrue.runtime.introspection.origins import is_own_code

OF_SQLALCHEMY_2_0 = """
def returning(self, *cols):
    return target(fn, self, *cols)
"""
OF_THE_PROGRAM = """
def reserve(self, *cols):
    return send(fn, self, *cols)
"""


def code_of(text: str, name: str) -> CodeType:
    names: dict[str, Any] = {}
    exec(text, names)
    function = names[name]
    return function.__code__  # type: ignore[no-any-return]


def test_what_sqlalchemy_makes_from_text_is_not_the_programs_own() -> None:
    orm = pytest.importorskip("sqlalchemy.orm")
    made = [orm.Session.connection, orm.Query.filter]
    text = [one.__code__ for one in made if "site-packages" not in one.__code__.co_filename]
    assert text, "SQLAlchemy makes none of these from text any more"
    assert not any(map(is_own_code, text))


def test_what_sqlalchemy_2_0_makes_from_text_is_known_by_its_names() -> None:
    assert not is_own_code(code_of(OF_SQLALCHEMY_2_0, "returning"))


def test_what_the_program_makes_from_text_is_its_own() -> None:
    assert is_own_code(code_of(OF_THE_PROGRAM, "reserve"))
