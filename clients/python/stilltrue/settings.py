"""The agent's settings: arguments of :class:`stilltrue.Agent`, or environment variables ``STILLTRUE_<NAME>``.

An invalid argument raises an error. An invalid environment variable never ends a program: it is logged as a warning, and the
default is used. An invalid TLS setting in the environment disables the agent: it never falls back to plain text. A misspelt
variable is ignored with a warning, too.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

from stilltrue.protocol.address import is_address, what_is_wrong
from stilltrue.protocol.misspelt import misspelt
from stilltrue.protocol.names import as_process_name, check_process_name

_LOGGER = logging.getLogger("stilltrue")
_PREFIX = "STILLTRUE_"
_FILES = ("tls_ca_file", "tls_cert_file", "tls_key_file", "token_file", "stamp_key_file")


def _are_texts(values: Collection[object]) -> bool:
    return all(isinstance(value, str) for value in values)


_KINDS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "str": (lambda value: isinstance(value, (str, os.PathLike)), "a text"),
    "bool": (lambda value: isinstance(value, bool), "true or false"),
    "float": (lambda value: isinstance(value, (int, float)) and not isinstance(value, bool), "a number"),
    "int": (lambda value: isinstance(value, int) and not isinstance(value, bool), "a whole number"),
    "Mapping[str, str]": (
        lambda value: isinstance(value, Mapping) and _are_texts((*value, *value.values())),
        "of the form name=value,name=value, or a mapping of texts",
    ),
    "tuple[str, ...]": (lambda value: isinstance(value, Collection) and _are_texts(value), "a list of patterns"),
}
"""By the type of a setting: whether a value is accepted as an argument, and what is, in words."""
_BOOLEANS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


class SettingRefusedError(ValueError):
    """An invalid setting; the message is one line and names it."""

    def __init__(self, text: str, *names: str) -> None:
        """``names`` are the settings concerned."""
        super().__init__(text)
        self.names = names


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of an agent. Raises :class:`SettingRefusedError` for an invalid value.

    - ``service``: the service that the process belongs to; ``instance``: its own name, unique among all processes.
    - ``detector``: HOST:PORT, or several separated by commas: the detector and its standby.
    - ``labels``: by which scopes select processes.
    - ``reactive``: the process acts only when it receives a message.
    - ``enabled``: False records nothing and does not connect.
    - ``block_seconds_max``: the agent requests a snapshot when a party has been blocked for this time.
    - ``welcome_seconds_max``: disconnect if the detector does not answer the hello in this time.
    - ``backoff_seconds_max``: the longest pause between attempts to reach a detector.
    - ``reports_max``: the maximum number of reports waiting to be sent.
    - ``tls_ca_file`` (the CAs to trust), ``tls_cert_file``, ``tls_key_file`` (the process's own): PEM files; ``token_file``: a
      bearer token. All are read again for each connection attempt.
    - ``stamp_key`` or ``stamp_key_file`` (one key a line, read again when it changes): the fleet's secret. Stamps are tagged
      with the first key; a stamp without the tag of any key is ignored.
    - ``allow_cure``: an operator may abort calls of deadlocked parties (``stilltrue cure``).
    - ``excluded_methods``: patterns (``/pkg.Service/*``) of methods that are not recorded.
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
        """Check the values."""
        for name in ("block_seconds_max", "welcome_seconds_max", "backoff_seconds_max"):
            if not 0 < getattr(self, name) <= 3600:
                raise SettingRefusedError(
                    f"{name}: must be more than 0 and at most 3600 seconds, not {getattr(self, name)}", name
                )
        if not 1 <= self.reports_max <= 10_000:
            raise SettingRefusedError(f"reports_max: must be 1 to 10000, not {self.reports_max}", "reports_max")
        if bool(self.tls_cert_file) != bool(self.tls_key_file):
            raise SettingRefusedError("tls_cert_file and tls_key_file must be set together", "tls_cert_file", "tls_key_file")
        if not is_address(self.detector):
            raise SettingRefusedError(f"detector: {what_is_wrong(self.detector)}", "detector")
        if self.instance:
            try:
                check_process_name(self.instance)
            except ValueError as refusal:
                raise SettingRefusedError(f"instance: {refusal}", "instance") from None


def read_settings(given: Mapping[str, object], environment: Mapping[str, str] = os.environ) -> Settings:
    """Read the settings: those ``given`` (None counts as not given), else the environment, else the defaults.

    Raises :class:`SettingRefusedError` for an invalid value that is given, and ``TypeError`` for an unknown name. Invalid
    values in the environment are logged as warnings.
    """
    values = _check_given(given)
    found = {name: value for name, value in _read_environment(environment).items() if name not in values}
    values["service"] = values.get("service") or found.pop("service", "") or "python"
    merged = _merge(values, found)
    pod = environment.get("POD_NAME", "")
    if pod:
        merged["labels"] = {"pod": pod, **cast("Mapping[str, str]", merged.get("labels") or {})}
    merged["instance"] = str(merged.get("instance") or _default_instance(str(merged["service"]), pod))
    return Settings(**merged)  # type: ignore[arg-type]  # each value was checked by name


def _check_given(given: Mapping[str, object]) -> dict[str, object]:
    """Check and convert the arguments."""
    known = {item.name: str(item.type) for item in fields(Settings)}
    values = {name: value for name, value in given.items() if value is not None}
    for name, value in values.items():
        if name not in known:
            near = get_close_matches(name, known, n=1)
            raise TypeError(f"no such setting: {name}{f'; did you mean {near[0]}?' if near else ''}")
        is_valid, what = _KINDS[known[name]]
        if isinstance(value, str):
            values[name] = _parse(name, known[name], value)
        elif not is_valid(value):
            raise SettingRefusedError(f"{name}: {value!r} is not {what}", name)
    for name in _FILES:
        if values.get(name) and not Path(str(values[name])).is_file():
            raise SettingRefusedError(f"{name}: no such file: {values[name]}", name)
    return values


def _read_environment(environment: Mapping[str, str]) -> dict[str, object]:
    """The valid settings in the environment. A file may still be missing: it is read when the agent connects."""
    values: dict[str, object] = {}
    for name, meant in misspelt(environment, [_PREFIX + item.name.upper() for item in fields(Settings)]):
        _LOGGER.warning("setting ignored: %s is not a setting; did you mean %s?", name, meant)
    for item in fields(Settings):
        text = environment.get(_PREFIX + item.name.upper())
        if text is not None:
            try:
                values[item.name] = _parse(item.name, str(item.type), text)
            except SettingRefusedError as refusal:
                _LOGGER.warning("setting ignored: %s; the default is used", refusal)
    return values


def _merge(values: dict[str, object], found: dict[str, object]) -> dict[str, object]:
    """Merge ``values`` with the valid ones of ``found``. Raises :class:`SettingRefusedError` for an invalid value given."""
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


def _default_instance(service: str, pod: str) -> str:
    """A unique name: service, host and process id; in a pod, the pod's name, with the process id except for process 1."""
    pid = os.getpid()
    if pod:
        return str(as_process_name(pod if pid == 1 else f"{pod[:240]}-{pid}"))
    return str(as_process_name(f"{service}-{socket.gethostname()}-{pid}"))


def _parse(name: str, kind: str, text: str) -> object:
    try:
        if kind == "bool":
            return _BOOLEANS[text.lower()]
        if kind == "float":
            return float(text)
        if kind == "int":
            return int(text)
        if kind.startswith("Mapping"):
            return dict(pair.split("=", 1) for pair in text.split(",") if pair)
        if kind.startswith("tuple"):
            return tuple(part.strip() for part in text.split(",") if part.strip())
    except (ValueError, KeyError):
        raise SettingRefusedError(f"{name} ({_PREFIX}{name.upper()}): {text!r} is not {_KINDS[kind][1]}", name) from None
    return text
