"""Conversions that all messages share: processes, facts, and the checks of numbers, times and names."""

from __future__ import annotations

import math
from collections.abc import Mapping

from stilltrue.model import NO_FACTS, Fact, Facts, PartyName, ProcessId, ProcessName, process_of
from stilltrue.protocol.names import NameRefusedError, check_process_name
from stilltrue.protocol.stamp import INCARNATION_MAX, NUMBER_MAX
from stilltrue.v1 import snapshot_pb2 as pb

TIME_MAX = 253_402_300_800.0
"""The end of the year 9999, in seconds since the epoch."""


class MalformedError(ValueError):
    """A message breaks the contract, by the sender's fault; the text is one line that names the field."""


def process_to_wire(process: ProcessId) -> pb.ProcessId:
    """Convert one incarnation of a process."""
    return pb.ProcessId(service=process.service, instance=process.instance, incarnation=process.incarnation)


def process_from_wire(message: pb.ProcessId) -> ProcessId:
    """Convert one incarnation of a process back; its name is checked."""
    try:
        instance = check_process_name(message.instance)
    except NameRefusedError as refusal:
        raise MalformedError(f"process.instance: {refusal}") from None
    return ProcessId(
        service=message.service,
        instance=instance,
        incarnation=checked_number("process.incarnation", message.incarnation, INCARNATION_MAX),
    )


def fact_to_wire(value: Fact) -> pb.Fact:
    """Convert a fact; a bool is not an int here."""
    if isinstance(value, bool):
        return pb.Fact(truth=value)
    if isinstance(value, int):
        return pb.Fact(whole=value)
    if isinstance(value, float):
        return pb.Fact(real=value)
    return pb.Fact(text=value)


def facts_from_wire(messages: Mapping[str, pb.Fact]) -> Facts:
    """Convert facts, by name, back."""
    if not messages:
        return NO_FACTS
    return {name: _fact(name, fact) for name, fact in messages.items()}


def _fact(name: str, message: pb.Fact) -> Fact:
    match message.WhichOneof("value"):
        case "whole":
            return message.whole
        case "real":  # NaN and infinities become text, which sums ignore and JSON can hold
            return message.real if math.isfinite(message.real) else str(message.real)
        case "text":
            return message.text
        case "truth":
            return message.truth
        case _:
            raise MalformedError(f"facts[{name!r}]: no value")


def put_facts(into: Mapping[str, pb.Fact], facts: Facts) -> None:
    """Write ``facts`` into a map field of a message."""
    for name, value in facts.items():
        into[name].CopyFrom(fact_to_wire(value))  # reading a missing key of a protobuf map creates it


def own_party(process: ProcessName, field: str, name: str) -> PartyName:
    """Return ``name`` if it is a party of ``process``. Raises :class:`MalformedError`."""
    party = any_party(field, name)
    if process_of(party) != process:
        raise MalformedError(f"{field}: {name!r} is not a party of {process}")
    return party


def any_party(field: str, name: str) -> PartyName:
    """Return ``name`` if it is a party of any process (``process/name``, or a process). Raises :class:`MalformedError`."""
    process, slash, rest = name.partition("/")
    if not process or (slash and not rest):
        raise MalformedError(f"{field}: {name!r} is not a party name")
    return PartyName(name)


def checked_number(field: str, value: int, highest: int = NUMBER_MAX) -> int:
    """Return ``value`` if it is at most ``highest``. Raises :class:`MalformedError`."""
    if value > highest:
        raise MalformedError(f"{field}: {value} is above {highest}")
    return value


def deadline_to_wire(deadline: float | None) -> float | None:
    """Convert a deadline; None for one beyond the calendar (a timeout of a trillion seconds, for example)."""
    return deadline if deadline is not None and deadline < TIME_MAX else None


def checked_time(field: str, value: float) -> float:
    """Return ``value`` if it is finite. Raises :class:`MalformedError`."""
    if not math.isfinite(value):
        raise MalformedError(f"{field}: {value} is not a valid time")
    return value
