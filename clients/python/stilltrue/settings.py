"""The agent's settings: each with its bound, its unit in its name, and its twin ``STILLTRUE_<NAME>`` in the environment."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import cast

from stilltrue.protocol.names import as_process_name, check_process_name

_PREFIX = "STILLTRUE_"
_TRUTHS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


class SettingRefusedError(ValueError):
    """A setting that cannot be; the text names it, in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What an agent is told at its start.

    ``service`` is what the process belongs to, ``instance`` its own name, unique in the fleet. ``detector`` is HOST:PORT.
    ``reactive``: the process does nothing unless a message comes. A party that is blocked for ``block_seconds_max`` makes the
    agent ask for a snapshot. ``welcome_seconds_max`` is how long a detector may take to answer a hello before it is left;
    attempts to reach one are up to ``backoff_seconds_max`` apart. ``reports_max`` reports await sending at the most.
    The ``tls`` files are PEM: ``tls_ca_file`` whom to trust, ``tls_cert_file`` and ``tls_key_file`` who we are; ``token_file``
    holds a bearer token. All are read anew at each dial. ``stamp_key`` (or a file of keys, one a line, read anew when it
    changes) is the fleet's secret: stamps are tagged with the first key, and those that no key has tagged count as none.
    ``enabled=False``: record nothing, dial nobody.
    """

    service: str = ""
    instance: str = ""
    detector: str = "127.0.0.1:7600"
    labels: Mapping[str, str] = field(default_factory=dict)
    reactive: bool = False
    enabled: bool = True
    block_seconds_max: float = 0.2
    welcome_seconds_max: float = 5.0
    backoff_seconds_max: float = 5.0
    reports_max: int = 64
    tls_ca_file: str = ""
    tls_cert_file: str = ""
    tls_key_file: str = ""
    token_file: str = ""
    stamp_key: str = field(default="", repr=False)
    stamp_key_file: str = ""

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        for name in ("block_seconds_max", "welcome_seconds_max", "backoff_seconds_max"):
            if not 0 < getattr(self, name) <= 3600:
                raise SettingRefusedError(f"{name}: more than 0 and at most 3600 seconds, not {getattr(self, name)}")
        if not 1 <= self.reports_max <= 10_000:
            raise SettingRefusedError(f"reports_max: 1 to 10000, not {self.reports_max}")
        if bool(self.tls_cert_file) != bool(self.tls_key_file):
            raise SettingRefusedError("tls_cert_file and tls_key_file: both or neither")
        for name in ("tls_ca_file", "tls_cert_file", "tls_key_file", "token_file", "stamp_key_file"):
            path = getattr(self, name)
            if path and not Path(path).is_file():
                raise SettingRefusedError(f"{name}: no such file: {path}")


def read_settings(given: Mapping[str, object], environment: Mapping[str, str] = os.environ) -> Settings:
    """The settings: those ``given`` (None counts as not given), else those of the environment, else the defaults.

    Raises :class:`SettingRefusedError`, and ``TypeError`` for a name that is no setting.
    """
    known = {item.name: item.type for item in fields(Settings)}
    values: dict[str, object] = {name: value for name, value in given.items() if value is not None}
    for name, value in tuple(values.items()):
        if name not in known:
            raise TypeError(f"no such setting: {name}")
        if isinstance(value, str) and str(known[name]).startswith("Mapping"):
            values[name] = _parse(name, str(known[name]), value)
    for name, kind in known.items():
        text = environment.get(_PREFIX + name.upper())
        if text is not None and name not in values:
            values[name] = _parse(name, str(kind), text)
    values["service"] = values.get("service") or "python"
    pod = environment.get("POD_NAME", "")
    values["instance"] = str(values.get("instance") or _own_name(str(values["service"]), pod))
    if pod:
        values["labels"] = {"pod": pod, **cast("Mapping[str, str]", values.get("labels") or {})}
    try:
        check_process_name(str(values["instance"]))
    except ValueError as refusal:
        raise SettingRefusedError(f"instance: {refusal}") from None
    return Settings(**values)  # type: ignore[arg-type]  # each value was checked by name


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
    except (ValueError, KeyError):
        raise SettingRefusedError(f"{name} ({_PREFIX}{name.upper()}): {text!r} is no {kind}") from None
    return text
