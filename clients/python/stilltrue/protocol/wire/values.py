"""Shared by all messages: processes, facts, and the checks of numbers, times and names."""

from __future__ import annotations

import math
from collections.abc import Mapping

from stilltrue.model import NO_FACTS, Fact, Facts, PartyName, ProcessId, ProcessName, process_of
from stilltrue.protocol.names import NameRefusedError, check_process_name
from stilltrue.protocol.stamp import INCARNATION_MAX, NUMBER_MAX
from stilltrue.v1 import snapshot_pb2 as pb


class MalformedError(ValueError):
    """A message that breaks the contract, by the sender's fault; one line that names the field."""


def process_to_wire(process: ProcessId) -> pb.ProcessId:
    """One incarnation of a process."""
    return pb.ProcessId(service=process.service, instance=process.instance, incarnation=process.incarnation)


def process_from_wire(message: pb.ProcessId) -> ProcessId:
    """One incarnation of a process; its name is checked."""
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
    """One fact; a bool is not an int here."""
    if isinstance(value, bool):
        return pb.Fact(truth=value)
    if isinstance(value, int):
        return pb.Fact(whole=value)
    if isinstance(value, float):
        return pb.Fact(real=value)
    return pb.Fact(text=value)


def facts_from_wire(messages: Mapping[str, pb.Fact]) -> Facts:
    """Facts by name."""
    if not messages:
        return NO_FACTS
    return {name: _fact(name, fact) for name, fact in messages.items()}


def _fact(name: str, message: pb.Fact) -> Fact:
    match message.WhichOneof("value"):
        case "whole":
            return message.whole
        case "real":  # NaN and infinities become text: no sum uses them, and JSON cannot hold them
            return message.real if math.isfinite(message.real) else str(message.real)
        case "text":
            return message.text
        case "truth":
            return message.truth
        case _:
            raise MalformedError(f"facts[{name!r}]: no value")


def put_facts(into: Mapping[str, pb.Fact], facts: Facts) -> None:
    """Write ``facts`` into a map of a message."""
    for name, value in facts.items():
        into[name].CopyFrom(fact_to_wire(value))  # reading a missing key of a protobuf map makes it


def own_party(process: ProcessName, field: str, name: str) -> PartyName:
    """``name``, if it is a party of ``process``. Raises :class:`MalformedError`."""
    party = any_party(field, name)
    if process_of(party) != process:
        raise MalformedError(f"{field}: {name!r} is not a party of {process}")
    return party


def any_party(field: str, name: str) -> PartyName:
    """``name``, if it is a party of any process (``process/name``, or a process). Raises :class:`MalformedError`."""
    process, slash, rest = name.partition("/")
    if not process or (slash and not rest):
        raise MalformedError(f"{field}: {name!r} is not the name of a party")
    return PartyName(name)


def checked_number(field: str, value: int, highest: int = NUMBER_MAX) -> int:
    """``value``, if it is at most ``highest``. Raises :class:`MalformedError`."""
    if value > highest:
        raise MalformedError(f"{field}: {value} is above {highest}")
    return value


def checked_time(field: str, value: float) -> float:
    """``value``, if it is finite. Raises :class:`MalformedError`."""
    if not math.isfinite(value):
        raise MalformedError(f"{field}: {value} is not a time")
    return value
