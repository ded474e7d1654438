"""Checks a predicate's settings against the signature of its class, so that a bad setting is a one-line error."""

from __future__ import annotations

import inspect
import json
import math
import re
import types
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin

EXAMPLES: dict[object, Any] = {float: 2.5, int: 7, bool: True, str: "name"}
_NAMES: dict[object, str] = {float: "a number", int: "an integer", bool: "true or false", str: "a string", type(None): "null"}
_ENTRY = re.compile(r"(\w+(?:, \w+)*) : (.+)")


class SettingError(ValueError):
    """An unknown setting, or a value that the predicate does not accept; the one-line text says what it accepts."""


class _Refused(Exception):  # noqa: N818 - never leaves this file
    """The value is not of the expected kind."""


def convert_settings(make: Callable[..., object], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Convert ``settings`` to keyword arguments for ``make``, each of the annotated type.

    Parameters
    ----------
    make : the predicate's class. Annotations that are checked: ``float``, ``int``, ``bool``, ``str``, enums, ``Literal``,
        sequences of these, and unions. A single value given for a sequence becomes a sequence of one; a number given for a
        string becomes its text.
    settings : values by name, as parsed from JSON.

    Raises
    ------
    SettingError
        Names the setting, its type, its description in the class's docstring (under Parameters), and an example.
    """
    known = _accepted_arguments(make)
    if known is None:
        return dict(settings)
    return {name: _convert_setting(make, name, value, known) for name, value in settings.items()}


def _accepted_arguments(make: Callable[..., object]) -> Mapping[str, inspect.Parameter] | None:
    """The keyword arguments that ``make`` takes; None if that cannot be determined or it takes any."""
    try:
        parameters = inspect.signature(make).parameters
    except (TypeError, ValueError):
        return None
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return None
    named = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return {name: parameter for name, parameter in parameters.items() if parameter.kind in named}


def _convert_setting(make: Callable[..., object], name: str, value: object, known: Mapping[str, inspect.Parameter]) -> object:
    if name not in known:
        raise SettingError(_unknown(name, known))
    hint = _hint(make, name)
    try:
        return _converted(hint, value)
    except _Refused:
        documented = _documented(make, name)
        meaning = f" ({documented})" if documented else ""
        example = f"for example {name}={_example(hint, known[name].default)}"
        raise SettingError(f"setting {name} must be {_described(hint)}{meaning}, not {_shortened(value)}; {example}") from None


def _unknown(name: str, known: Mapping[str, inspect.Parameter]) -> str:
    if not known:
        return f"it takes no settings, but {name!r} was given"
    near = get_close_matches(name, known, n=1)
    guess = f" (did you mean {near[0]}?)" if near else ""
    return f"it has no setting {name!r}{guess}; available: {', '.join(known)}"


def _hint(make: Callable[..., object], name: str) -> object:
    """The annotation of the argument ``name``; ``Any`` if it cannot be evaluated."""
    try:
        hint = inspect.signature(make, eval_str=True).parameters[name].annotation
    except Exception:  # noqa: BLE001 - third-party annotations may raise anything
        return Any
    return Any if hint is inspect.Parameter.empty else hint


def _converted(hint: object, value: object) -> object:  # noqa: PLR0911 - one return per type
    """Convert ``value`` to the type ``hint``, or raise ``_Refused``."""
    options = _options(hint)
    if options:
        return _converted_to_first(options, value)
    if get_origin(hint) is Literal:
        return _choose(value, {choice: choice for choice in get_args(hint)})
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _choose(value, {choice.value: choice for choice in hint})
    if _is_sequence(hint):
        items = value if isinstance(value, list) else [value]
        inner = next(iter(get_args(hint)), Any)
        return [_converted(inner, item) for item in items]
    if hint is bool or hint is type(None):
        return _require(value, type(value) is hint)
    if hint is int:
        return _require(value, type(value) is int)
    if hint is float:
        return _require(value, isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value))
    if hint is str:
        return value if isinstance(value, str) else _require(json.dumps(value), isinstance(value, (int, float)))
    return value


def _options(hint: object) -> tuple[object, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else ()


def _is_sequence(hint: object) -> bool:
    origin = get_origin(hint) or hint
    return isinstance(origin, type) and issubclass(origin, Sequence) and origin not in (str, bytes)


def _converted_to_first(options: Sequence[object], value: object) -> object:
    for option in options:
        try:
            return _converted(option, value)
        except _Refused:
            continue
    raise _Refused


def _choose(value: object, choices: Mapping[Any, object]) -> object:
    for written, choice in choices.items():
        if type(written) is type(value) and written == value:
            return choice
    raise _Refused


def _require(value: object, fits: bool) -> object:
    if not fits:
        raise _Refused
    return value


def _described(hint: object) -> str:
    """Describe the type ``hint`` for an error message."""
    if options := _options(hint):
        return " or ".join(map(_described, options))
    if get_origin(hint) is Literal:
        return " or ".join(map(json.dumps, get_args(hint)))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return " or ".join(json.dumps(choice.value) for choice in hint)
    if _is_sequence(hint):
        inner = next(iter(get_args(hint)), Any)
        return "a list" if inner is Any else f"a list, each item {_described(inner)}"
    return _NAMES.get(hint, "something else")


def _example(hint: object, default: object) -> str:
    """An example of a valid value; the default when it is a non-empty string or a number."""
    if isinstance(default, (str, int, float)) and default != "":
        return default if isinstance(default, str) else json.dumps(default)
    options = _options(hint) or get_args(hint)
    if _is_sequence(hint):
        return json.dumps([EXAMPLES.get(options[0], "name") if options else "name"])
    if get_origin(hint) is Literal:
        return str(options[0])
    kinds = [EXAMPLES[option] for option in (hint, *options) if option in EXAMPLES]
    return json.dumps(kinds[0]) if kinds else "..."


def _documented(make: Callable[..., object], name: str) -> str:
    """The first sentence about the argument ``name`` under Parameters in the docstring of ``make``."""
    _, _, text = inspect.cleandoc(make.__doc__ or "").partition("Parameters\n----------\n")
    lines = text.splitlines()
    for at, line in enumerate(lines):
        entry = _ENTRY.fullmatch(line)
        if entry and name in entry[1].split(", "):
            more = [later.strip() for later in _leading_indented(lines[at + 1 :])]
            return re.split(r"\.(?:\s|$)", " ".join([entry[2], *more]), maxsplit=1)[0].replace("`", "")
    return ""


def _leading_indented(lines: Sequence[str]) -> list[str]:
    end = next((at for at, line in enumerate(lines) if not line.startswith(" ")), len(lines))
    return list(lines[:end])


def _shortened(value: object) -> str:
    shown = json.dumps(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
