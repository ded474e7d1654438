"""Plans as JSON: an important world is stored in full, since its seed yields another plan once its recipe changes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any

from detector.simulator.plans import plan as nouns
from detector.simulator.plans.plan import Fault, Plan

IS = "is"
"""The key under which a noun's own name stands."""


def plan_to_json(plan: Plan) -> str:
    """``plan`` as JSON, without default values."""
    return json.dumps(_encoded(plan), indent=1) + "\n"


def plan_from_json(text: str) -> Plan:
    """Read a plan written by :func:`plan_to_json`; raises TypeError, KeyError or ValueError for anything else."""
    plan = _decoded(json.loads(text))
    if not isinstance(plan, Plan):
        raise TypeError(f"not a plan but {type(plan).__name__}")
    return plan


def _encoded(value: Any) -> Any:
    if isinstance(value, Enum):
        return {IS: type(value).__name__, "name": value.name}
    if is_dataclass(value) and not isinstance(value, type):
        told = {one.name: getattr(value, one.name) for one in fields(value)}
        return {IS: type(value).__name__} | {
            one.name: _encoded(told[one.name])
            for one in fields(value)
            if one.default is MISSING or told[one.name] != one.default
        }
    if isinstance(value, Mapping):
        return {key.name if isinstance(key, Fault) else key: _encoded(one) for key, one in value.items()}
    if isinstance(value, tuple):
        return [_encoded(one) for one in value]
    return value


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_decoded(one) for one in value)
    if not isinstance(value, dict):
        return value
    told = {key: _decoded(one) for key, one in value.items() if key != IS}
    if IS not in value:
        return MappingProxyType({Fault.__members__.get(key, key): one for key, one in told.items()})
    kind = getattr(nouns, value[IS])
    return kind[told["name"]] if issubclass(kind, Enum) else kind(**told)
