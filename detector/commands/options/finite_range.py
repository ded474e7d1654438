"""An option type for bounded numbers that, unlike click's own, rejects ``nan`` and infinities."""

from __future__ import annotations

import math
from typing import Any

import click


class FiniteRange(click.FloatRange):
    """A ``click.FloatRange`` of finite numbers; comparing with the bounds alone would accept ``nan``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert and check ``value``."""
        number = click.FLOAT.convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return super().convert(value, param, ctx)
