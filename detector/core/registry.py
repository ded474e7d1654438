"""Finds predicates by entry point, and asks them without letting one hurt another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Any

from detector.core.answer import fault_of
from detector.core.plugin_settings import SettingError, fitted
from detector.core.predicate import Predicate, treats_missing
from detector.core.snapshot import Snapshot
from stilltrue.model import Holds, PartyName, Verdict, Witness

GROUP = "stilltrue.predicates"

Settings = Mapping[str, Any]
NO_SETTINGS: Mapping[str, Settings] = MappingProxyType({})


class PluginError(Exception):
    """A predicate's own fault (or of whoever configured it); the text names the predicate and where it comes from."""


class RefusedSettingError(PluginError):
    """Whoever configured the predicate gave a setting that it cannot take; the text says what it can."""


class UnknownPredicateError(LookupError):
    """Nobody has installed a predicate of this name; the text lists those there are."""


def predicate_names() -> tuple[str, ...]:
    """The names of all installed predicates, sorted."""
    return tuple(sorted({entry.name for entry in entry_points(group=GROUP)}))


def find_predicate(name: str, settings: Settings | None = None) -> Predicate:
    """Make the predicate called ``name``, with ``settings`` as its keyword arguments.

    Raises
    ------
    UnknownPredicateError
        When there is none of that name.
    RefusedSettingError
        When it has no such setting, or the value is not what its class asks for (a ``ValueError`` of its own counts too).
    PluginError
        When it cannot be imported or made, two packages claim the name, or what is made is no predicate.
    """
    found = sorted(entry_points(group=GROUP, name=name), key=lambda entry: entry.value)
    if not found:
        raise UnknownPredicateError(f"no predicate {name!r}; there are {', '.join(predicate_names())}")
    places = sorted({entry.value for entry in found})
    if len(places) > 1:
        raise PluginError(f"predicate {name!r} is claimed by {' and by '.join(places)}")
    try:
        kind = found[0].load()
        made = kind(**fitted(kind, settings or {}))
    except SettingError as error:
        raise RefusedSettingError(f"predicate {name!r}: {error}") from error
    except (Exception, SystemExit) as error:
        if settings and isinstance(error, ValueError):
            raise RefusedSettingError(f"predicate {name!r}: {' '.join(str(error).split())}") from error
        raise PluginError(f"predicate {name!r} ({places[0]}) cannot be made: {_said(error)}") from error
    if not isinstance(made, Predicate):
        raise PluginError(f"predicate {name!r} ({places[0]}) has no name and evaluate(snapshot)")
    return made


def find_predicates(names: Sequence[str], settings: Mapping[str, Settings] = NO_SETTINGS) -> list[Predicate]:
    """The predicates called ``names``, with their ``settings`` by name; raises as :func:`find_predicate`."""
    return [find_predicate(name, settings.get(name)) for name in names]


def check_settings(settings: Mapping[str, Settings]) -> None:
    """See that predicates can take their settings (by the predicate's name), before anything is asked.

    Raises
    ------
    UnknownPredicateError, RefusedSettingError
        As :func:`find_predicate`. One that cannot be made for another reason is passed over: that hurts its own answers only.
    """
    for name, given in settings.items():
        try:
            find_predicate(name, given)
        except RefusedSettingError:
            raise
        except PluginError:
            continue


def ask(predicate: Predicate, snapshot: Snapshot) -> Verdict:
    """The predicate's verdict; UNDETERMINED when members are missing and it does not say how to treat that.

    Raises
    ------
    PluginError
        When the predicate raises (or asks to end the program), or answers with something that is no verdict.
    """
    if snapshot.missing and not treats_missing(predicate):
        return _not_asked(predicate.name, snapshot)
    try:
        verdict = predicate.evaluate(snapshot)
    except (Exception, SystemExit) as error:
        raise PluginError(f"predicate {predicate.name!r} failed: {_said(error)}") from error
    fault = fault_of(verdict)
    if fault:
        raise PluginError(f"predicate {predicate.name!r} answered with {fault}")
    return verdict


def _not_asked(name: str, snapshot: Snapshot) -> Verdict:
    missing = tuple(map(PartyName, snapshot.missing))
    text = f"{name} does not say how to treat missing members, and {', '.join(missing)} did not report"
    return Verdict(
        predicate=name,
        holds=Holds.UNDETERMINED,
        witness=Witness(kind="missing", parties=missing, text=text),
        snapshot=snapshot.ref,
        missing=snapshot.missing,
        decisive=snapshot.missing,
    )


def _said(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
