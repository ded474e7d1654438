"""Evaluates one installed predicate on documents, offline; picklable, so that worker processes can share the work."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from detector.commands.evaluation.time_limit import OverrunError, time_limit
from detector.core.document.keys import OnUnknownKey, ignore_unknown_key
from detector.core.document.reader import parse_document
from detector.core.predicate import Predicate
from detector.core.registry import PluginError, ask, find_predicate
from detector.core.scope import scoped
from detector.core.snapshot import Snapshot
from detector.core.undetermined import undetermined
from detector.core.verdict import write_verdict
from stilltrue.model import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A predicate with its settings, the scopes to evaluate it for (name to labels), and a time limit per document."""

    predicate: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    scopes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    seconds_max: float = 0

    def prepare(self) -> OfflineEvaluator:
        """Look up the predicate.

        Raises
        ------
        UnknownPredicateError, PluginError
            As :func:`~detector.core.registry.find_predicate`.
        """
        return OfflineEvaluator(question=self, predicate=find_predicate(self.predicate, self.settings))


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineEvaluator:
    """A question with its predicate looked up."""

    question: Question
    predicate: Predicate

    def verdicts(
        self, text: str, *, file: str, first_line: int = 1, on_unknown_key: OnUnknownKey = ignore_unknown_key
    ) -> tuple[dict[str, Any], list[Verdict]]:
        """Evaluate the document in ``text`` for each scope, or as a whole: the raw object and the verdicts.

        ``on_unknown_key`` is called for each key that was ignored.

        Raises
        ------
        DocumentError
            When the text is not a valid snapshot document.
        """
        raw, views = self.views(text, file=file, first_line=first_line, on_unknown_key=on_unknown_key)
        return raw, [self.verdict(view) for view in views]

    def views(
        self, text: str, *, file: str, first_line: int = 1, on_unknown_key: OnUnknownKey = ignore_unknown_key
    ) -> tuple[dict[str, Any], list[Snapshot]]:
        """Parse the document in ``text``: the raw object and its snapshot, restricted to each scope. See :meth:`verdicts`."""
        raw, snapshot = parse_document(text, file=file, first_line=first_line, on_unknown_key=on_unknown_key)
        return raw, [scoped(snapshot, name, labels) for name, labels in self.question.scopes.items()] or [snapshot]

    def verdict(self, view: Snapshot) -> Verdict:
        """Evaluate the predicate. Never raises: an empty scope or a failing predicate gives UNDETERMINED, with the reason."""
        name = self.question.predicate
        if self.question.scopes and not (view.processes or view.missing):
            return undetermined(name, view.ref, "empty", f"no process has the labels {view.ref.scope}")
        try:
            with time_limit(self.question.seconds_max):
                return replace(ask(self.predicate, view), predicate=name)
        except OverrunError as error:
            return undetermined(name, view.ref, "overrun", f"{name} {error}")
        except PluginError as error:
            return undetermined(name, view.ref, "failed", str(error))

    def lines(
        self, text: str, *, file: str, line: int, on_unknown_key: OnUnknownKey = ignore_unknown_key
    ) -> tuple[list[str], list[str]]:
        """Evaluate one line of JSON: the verdicts as JSON texts, and a line for each failure of the predicate.

        Raises
        ------
        DocumentError
            When the line is not a valid snapshot document.
        """
        raw, verdicts = self.verdicts(text, file=file, first_line=line, on_unknown_key=on_unknown_key)
        own = {"id": raw["id"]} if "id" in raw else {}
        return [json.dumps(write_verdict(verdict) | own) for verdict in verdicts], failures(verdicts, f"{file}: {line}")


def failures(verdicts: list[Verdict], place: str) -> list[str]:
    """One line for each failure of the predicate, prefixed with ``place`` (in the input)."""
    return [f"{place}: {verdict.witness.text}" for verdict in verdicts if verdict.witness.kind in ("failed", "overrun")]
