"""Options that are numbers reject NaN and infinity."""

from __future__ import annotations

from importlib import import_module

import click
import pytest
from click.testing import CliRunner

from detector.cli import COMMANDS
from detector.commands.options.finite_range import FiniteRange

NUMBERS = sorted(
    (name, option.opts[0])
    for name, (place, _) in COMMANDS.items()
    for option in getattr(import_module(place.partition(":")[0]), place.partition(":")[2]).params
    if isinstance(option, click.Option) and isinstance(option.type, click.types.FloatParamType) and not option.hidden
)


@pytest.mark.parametrize(("name", "option"), NUMBERS)
@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e999", "many"])
def test_nan_and_infinity_are_refused(name: str, option: str, value: str) -> None:
    place, _, of = COMMANDS[name][0].partition(":")
    result = CliRunner().invoke(getattr(import_module(place), of), [f"{option}={value}"])
    assert result.exit_code == 2
    assert option in result.output


def test_bounds_hold_as_in_clicks_own_type() -> None:
    kind = FiniteRange(min=0, min_open=True, max=5)
    assert kind.convert("5", None, None) == 5.0
    for value in ("0", "-1", "5.1"):
        with pytest.raises(click.BadParameter, match="is not in the range"):
            kind.convert(value, None, None)
