"""The agent's settings: each with its bound, its unit in its name, and its twin ``STILLTRUE_<NAME>`` in the environment.

What the program's own code passes is checked, and refused with an error. The environment never ends a program: a bad value
there is a warning, and the default is used. A bad value of a TLS setting disables the agent: it never falls back to plain text.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import cast

from stilltrue.protocol.names import as_process_name, check_process_name

_LOGGER = logging.getLogger("stilltrue")
_PREFIX = "STILLTRUE_"
_FILES = ("tls_ca_file", "tls_cert_file", "tls_key_file", "token_file", "stamp_key_file")
_KINDS = {
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "Mapping[str, str]": "of the form name=value,name=value",
}
_TRUTHS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


class SettingRefusedError(ValueError):
    """An invalid setting; the text names it, in one line."""

    def __init__(self, text: str, *names: str) -> None:
        """``names`` are the settings that ``text`` is about."""
        super().__init__(text)
        self.names = names


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of an agent.

    ``service`` is what the process belongs to, ``instance`` its own name, unique in the fleet. ``detector`` is HOST:PORT, or
    several separated by commas: the detector and its standby.
    ``reactive``: the process does nothing unless a message comes. A party that is blocked for ``block_seconds_max`` makes the
    agent ask for a snapshot. ``welcome_seconds_max`` is how long a detector may take to answer a hello before it is left;
    attempts to reach one are up to ``backoff_seconds_max`` apart. ``reports_max`` reports await sending at the most.
    The ``tls`` files are PEM: ``tls_ca_file`` whom to trust, ``tls_cert_file`` and ``tls_key_file`` who we are; ``token_file``
    holds a bearer token. All are read again at each dial. ``stamp_key`` (or a file of keys, one a line, read again when it
    changes) is the fleet's secret: stamps are tagged with the first key, and those that no key has tagged count as none.
    ``enabled=False``: record nothing, connect to nothing.
    ``allow_cure``: calls of deadlocked parties may be aborted when an operator asks the detector for it (``stilltrue cure``).
    ``excluded_methods`` are patterns (``/pkg.Service/*``) of methods that are not recorded.
    """

    service: str = ""
    instance: str = ""
    detector: str = "127.0.0.1:7600"
    labels: Mapping[str, str] = field(default_factory=dict)
    reactive: bool = False
    enabled: bool = True
    block_seconds_max: float = 0.2
    welcome_seconds_max: float = 5.0
    backoff_seconds_max: float = 4.0
    reports_max: int = 64
    tls_ca_file: str = ""
    tls_cert_file: str = ""
    tls_key_file: str = ""
    token_file: str = ""
    stamp_key: str = field(default="", repr=False)
    stamp_key_file: str = ""
    allow_cure: bool = False
    excluded_methods: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse invalid values."""
        for name in ("block_seconds_max", "welcome_seconds_max", "backoff_seconds_max"):
            if not 0 < getattr(self, name) <= 3600:
                raise SettingRefusedError(
                    f"{name}: must be more than 0 and at most 3600 seconds, not {getattr(self, name)}", name
                )
        if not 1 <= self.reports_max <= 10_000:
            raise SettingRefusedError(f"reports_max: must be 1 to 10000, not {self.reports_max}", "reports_max")
        if bool(self.tls_cert_file) != bool(self.tls_key_file):
            raise SettingRefusedError("tls_cert_file and tls_key_file must be set together", "tls_cert_file", "tls_key_file")
        if self.instance:
            try:
                check_process_name(self.instance)
            except ValueError as refusal:
                raise SettingRefusedError(f"instance: {refusal}", "instance") from None


def read_settings(given: Mapping[str, object], environment: Mapping[str, str] = os.environ) -> Settings:
    """The settings: those ``given`` (None counts as not given), else those of the environment, else the defaults.

    Raises :class:`SettingRefusedError` for what is given, and ``TypeError`` for a name that is not a setting. What the
    environment has wrong is a warning.
    """
    values = _given(given)
    found = {name: value for name, value in _found(environment).items() if name not in values}
    values["service"] = values.get("service") or found.pop("service", "") or "python"
    merged = _merge(values, found)
    pod = environment.get("POD_NAME", "")
    if pod:
        merged["labels"] = {"pod": pod, **cast("Mapping[str, str]", merged.get("labels") or {})}
    merged["instance"] = str(merged.get("instance") or _own_name(str(merged["service"]), pod))
    return Settings(**merged)  # type: ignore[arg-type]  # each value was checked by name


def _given(given: Mapping[str, object]) -> dict[str, object]:
    """The arguments of the program, checked."""
    known = {item.name: str(item.type) for item in fields(Settings)}
    values = {name: value for name, value in given.items() if value is not None}
    for name, value in values.items():
        if name not in known:
            raise TypeError(f"no such setting: {name}")
        if isinstance(value, str) and known[name].startswith(("Mapping", "tuple")):
            values[name] = _parse(name, known[name], value)
    for name in _FILES:
        if values.get(name) and not Path(str(values[name])).is_file():
            raise SettingRefusedError(f"{name}: no such file: {values[name]}", name)
    return values


def _found(environment: Mapping[str, str]) -> dict[str, object]:
    """The valid settings in the environment. A file may be missing now: it is read when the agent connects."""
    values: dict[str, object] = {}
    for item in fields(Settings):
        text = environment.get(_PREFIX + item.name.upper())
        if text is not None:
            try:
                values[item.name] = _parse(item.name, str(item.type), text)
            except SettingRefusedError as refusal:
                _LOGGER.warning("setting ignored: %s; the default is used", refusal)
    return values


def _merge(values: dict[str, object], found: dict[str, object]) -> dict[str, object]:
    """Both, without what is found and refused. Raises :class:`SettingRefusedError` for what is given."""
    while True:
        merged = {**found, **values}
        try:
            Settings(**merged)  # type: ignore[arg-type]  # each value was checked by name
        except SettingRefusedError as refusal:
            refused = [name for name in refusal.names if name in found]
            if not refused:
                raise
            for name in refused:
                del found[name]
            if set(refused) & set(_FILES):
                found["enabled"] = values["enabled"] = False
            _LOGGER.warning("setting ignored: %s (%s in the environment); %s", refusal, *_consequence(refused))
        else:
            return merged


def _consequence(refused: list[str]) -> tuple[str, str]:
    names = ", ".join(f"{_PREFIX}{name.upper()}" for name in refused)
    return names, "this process is not watched" if set(refused) & set(_FILES) else "the default is used"


def _own_name(service: str, pod: str) -> str:
    """A name that no other process has: service, host and process id; a container's first process is its pod."""
    pid = os.getpid()
    if pod:
        return str(as_process_name(pod if pid == 1 else f"{pod[:240]}-{pid}"))
    return str(as_process_name(f"{service}-{socket.gethostname()}-{pid}"))


def _parse(name: str, kind: str, text: str) -> object:
    try:
        if kind == "bool":
            return _TRUTHS[text.lower()]
        if kind == "float":
            return float(text)
        if kind == "int":
            return int(text)
        if kind.startswith("Mapping"):
            return dict(pair.split("=", 1) for pair in text.split(",") if pair)
        if kind.startswith("tuple"):
            return tuple(part.strip() for part in text.split(",") if part.strip())
    except (ValueError, KeyError):
        raise SettingRefusedError(f"{name} ({_PREFIX}{name.upper()}): {text!r} is not {_KINDS[kind]}", name) from None
    return text
