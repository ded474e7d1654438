"""Finds predicates by entry point and evaluates them; a failing predicate does not affect the others."""

from __future__ import annotations

import functools
import sys
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import MappingProxyType
from typing import Any

from detector.core.membership_doubt import withheld
from detector.core.plugin_settings import SettingError, convert_settings
from detector.core.predicate import Predicate, reads_activity, treats_forgotten, treats_missing
from detector.core.snapshot import Snapshot
from detector.core.undetermined import depends_on_forgotten, nobody_reported, undetermined
from detector.core.verdict_validation import problem_with
from detector.core.verification.assumptions import with_assumptions
from detector.core.verification.evidence import with_evidence
from stilltrue.model import Holds, PartyName, ProcessName, Verdict, Witness

GROUP = "stilltrue.predicates"

PredicateSettings = Mapping[str, Any]
_OWN = "deadlock"
_NOT_INSTALLED = (
    "no predicate is installed, not even deadlock: this is a copy of the detector's code, and the package stilltrue-detector "
    "is not installed for this Python; in a clone: pip install ./clients/python ."
)
NO_SETTINGS: Mapping[str, PredicateSettings] = MappingProxyType({})


class PluginError(Exception):
    """An error of a predicate or its configuration; the text names the predicate and its package."""


class RefusedSettingError(PluginError):
    """A predicate was configured with a setting that it does not accept; the text says what it accepts."""


class UnknownPredicateError(LookupError):
    """No predicate of this name is installed; the text lists the available ones."""


def predicate_names() -> tuple[str, ...]:
    """The names of all installed predicates, sorted."""
    return tuple(sorted({entry.name for entry in _installed()}))


def _installed() -> tuple[EntryPoint, ...]:
    """The entry points of all predicates. Reading them takes 25 ms, so they are read again only if a folder has changed."""
    return _read(entry_points, tuple((path, _changed_at(path)) for path in sys.path))


@functools.lru_cache(maxsize=4)
def _read(read: Callable[..., Iterable[EntryPoint]], folders: tuple[tuple[str, int], ...]) -> tuple[EntryPoint, ...]:  # noqa: ARG001
    return tuple(read(group=GROUP))


def _changed_at(path: str) -> int:
    """When a package was last installed there or removed, in nanoseconds; 0 if there is no such folder."""
    try:
        return Path(path or ".").stat().st_mtime_ns
    except OSError:
        return 0


def check_installed() -> None:
    """Raise :class:`UnknownPredicateError` if not even the detector's own predicates are installed: it would never answer."""
    if _OWN not in predicate_names():
        raise UnknownPredicateError(_NOT_INSTALLED)


def no_predicate(name: str, available: Sequence[str]) -> str:
    """Say that there is no predicate of this name; suggests the one that was probably meant."""
    if not available:
        return _NOT_INSTALLED
    near = "".join(f" (did you mean {one}?)" for one in get_close_matches(name, available, n=1))
    return f"no predicate {name!r}{near}; available: {', '.join(available)}"


def find_predicate(name: str, settings: PredicateSettings | None = None) -> Predicate:
    """Create the predicate ``name``, with ``settings`` as its keyword arguments.

    Raises
    ------
    UnknownPredicateError
        When no predicate of that name is installed.
    RefusedSettingError
        When it has no such setting, or rejects the value (a ``ValueError`` raised by its class counts too).
    PluginError
        When it cannot be imported or created, several packages provide the name, or the result is not a predicate.
    """
    found = sorted((entry for entry in _installed() if entry.name == name), key=lambda entry: entry.value)
    if not found:
        raise UnknownPredicateError(no_predicate(name, predicate_names()))
    places = sorted({entry.value for entry in found})
    if len(places) > 1:
        raise PluginError(f"predicate {name!r} is provided by {' and by '.join(places)}")
    try:
        kind = found[0].load()
        made = kind(**convert_settings(kind, settings or {}))
    except SettingError as error:
        raise RefusedSettingError(f"predicate {name!r}: {error}") from error
    except (Exception, SystemExit) as error:
        if settings and isinstance(error, ValueError):
            raise RefusedSettingError(f"predicate {name!r}: {' '.join(str(error).split())}") from error
        raise PluginError(f"predicate {name!r} ({places[0]}) cannot be created: {described(error)}") from error
    if not isinstance(made, Predicate):
        raise PluginError(f"predicate {name!r} ({places[0]}) must have a name and evaluate(snapshot)")
    return made


class UnusablePredicate:
    """Placeholder for a predicate that cannot be created: evaluating it fails, the others still work."""

    treats_missing = True

    def __init__(self, name: str, reason: PluginError) -> None:
        """``reason``: why it cannot be created."""
        self.name = name
        self.reason = reason

    def evaluate(self, snapshot: Snapshot) -> Verdict:  # noqa: ARG002 - the protocol's parameter
        """Raise the reason."""
        raise self.reason


def predicate_or_unusable(name: str, settings: PredicateSettings | None = None) -> Predicate:
    """Like :func:`find_predicate`, but returns an :class:`UnusablePredicate` if it cannot be created."""
    try:
        return find_predicate(name, settings)
    except PluginError as error:
        return UnusablePredicate(name, error)


def find_predicates(names: Sequence[str], settings: Mapping[str, PredicateSettings] = NO_SETTINGS) -> list[Predicate]:
    """Create the predicates ``names`` with their ``settings`` by name. Raises like :func:`find_predicate`."""
    return [find_predicate(name, settings.get(name)) for name in names]


def check_settings(settings: Mapping[str, PredicateSettings]) -> None:
    """Check that the predicates accept their settings, given by predicate name, before any is evaluated.

    Raises
    ------
    UnknownPredicateError, RefusedSettingError
        Like :func:`find_predicate`. Any other failure to create a predicate is ignored here: it affects only its own answers.
    """
    for name, given in settings.items():
        try:
            find_predicate(name, given)
        except RefusedSettingError:
            raise
        except PluginError:
            continue


def ask(predicate: Predicate, snapshot: Snapshot) -> Verdict:
    """Evaluate the predicate; UNDETERMINED if members are missing and it does not handle that.

    Raises
    ------
    PluginError
        When the predicate raises (``SystemExit`` included) or returns something other than a valid verdict.
    """
    verdict = _answer(predicate, snapshot)
    if depends_on_idleness(predicate, snapshot, verdict, snapshot.doubts):
        verdict = _in_doubt(verdict, snapshot)
    else:
        verdict = with_assumptions(with_evidence(verdict, snapshot), snapshot)
    return withheld(verdict, snapshot.membership)


def answered(name: str, predicate: Predicate, view: Snapshot) -> Verdict:
    """The verdict of the predicate ``name`` on a scope's view; UNDETERMINED if no member reported or the predicate fails."""
    if not view.processes:
        return nobody_reported(name, view)
    try:
        return replace(ask(predicate, view), predicate=name, snapshot=view.ref)
    except PluginError as error:
        return undetermined(name, view.ref, "failed", str(error))


def may_depend_on_idleness(predicate: Predicate, verdict: Verdict) -> bool:
    """Whether ``verdict`` is TRUE and may be so only because processes are idle."""
    return verdict.holds is Holds.TRUE and reads_activity(predicate)


def depends_on_idleness(predicate: Predicate, snapshot: Snapshot, verdict: Verdict, processes: Collection[ProcessName]) -> bool:
    """Whether ``verdict`` is TRUE and would not be if ``processes`` were active. Raises like :func:`ask`."""
    if not processes or not may_depend_on_idleness(predicate, verdict):
        return False
    return _answer(predicate, snapshot.with_active(processes)).holds is not Holds.TRUE


def _answer(predicate: Predicate, snapshot: Snapshot) -> Verdict:
    if snapshot.missing and not treats_missing(predicate):
        return _not_asked(predicate.name, snapshot)
    if snapshot.forgetful and not treats_forgotten(predicate):
        return depends_on_forgotten(predicate.name, snapshot)
    try:
        verdict = predicate.evaluate(snapshot)
    except (Exception, SystemExit) as error:
        raise PluginError(f"predicate {predicate.name!r} failed: {described(error)}{_place(predicate, error)}") from error
    problem = problem_with(verdict)
    if problem:
        raise PluginError(f"predicate {predicate.name!r} returned {problem}")
    if (verdict.predicate, verdict.snapshot) != (predicate.name, snapshot.ref):  # it passes on another predicate's answer
        return replace(verdict, predicate=predicate.name, snapshot=snapshot.ref)
    return verdict


def _in_doubt(verdict: Verdict, snapshot: Snapshot) -> Verdict:
    """UNDETERMINED: the answer depends on processes that only seem idle."""
    reasons = tuple(f"{name}: {doubt}" for name, doubt in snapshot.doubts.items())
    text = f"{verdict.witness.text}; but they may not stay idle: {reasons[0]}"
    more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
    return Verdict(
        predicate=verdict.predicate,
        holds=Holds.UNDETERMINED,
        witness=Witness(kind="unconfirmed", parties=tuple(map(PartyName, snapshot.doubts)), text=text + more),
        snapshot=verdict.snapshot,
        missing=verdict.missing,
        explanation=reasons,
    )


def _not_asked(name: str, snapshot: Snapshot) -> Verdict:
    missing = tuple(map(PartyName, snapshot.missing))
    text = f"{name} does not handle missing members, and {', '.join(missing)} did not report"
    return Verdict(
        predicate=name,
        holds=Holds.UNDETERMINED,
        witness=Witness(kind="missing", parties=missing, text=text),
        snapshot=snapshot.ref,
        missing=snapshot.missing,
        decisive=snapshot.missing,
    )


def _place(predicate: Predicate, error: BaseException) -> str:
    """Where in the predicate's file it failed: `` (my_predicates.py:21 in evaluate)``; empty if that is unknown."""
    own = getattr(sys.modules.get(type(predicate).__module__), "__file__", None)
    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == own]
    return f" ({Path(lines[-1].filename).name}:{lines[-1].lineno} in {lines[-1].name})" if lines else ""


def described(error: BaseException) -> str:
    """Format a plug-in's exception on one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())
