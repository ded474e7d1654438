"""Ready-made sources, steps and sinks whose states can be restored, to build jobs from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from detector.checkpoints.graph.job import Emit, VertexContext
from detector.checkpoints.protocol.points import CompletedPoint, Value
from stilltrue.model import ProcessName


class SplitSource:
    """A bounded source that reads named splits, such as files or partitions; ``Sharing.SPLIT``.

    The splits are dealt to the vertices in the order of their names; each vertex reads its splits in turn, ``batch``
    values at a time. The state is where each split stands.
    """

    def __init__(self, splits: Mapping[str, Sequence[Value]], context: VertexContext, *, batch: int = 16) -> None:
        self._splits = splits
        self._batch = batch
        self._at = dict.fromkeys(sorted(splits)[context.index :: context.parallelism], 0)

    def read(self) -> Iterable[Value] | None:
        """The next values of the split whose turn it is."""
        for name, at in self._at.items():
            values = self._splits[name][at : at + self._batch]
            if values:
                del self._at[name]
                self._at[name] = at + len(values)  # to the end of the row: the next split is next
                return values
        return None

    def state(self) -> Value:
        """One item a split: its name and how many values have been read."""
        return [{"split": name, "at": at} for name, at in self._at.items()]

    def restore(self, state: Value) -> None:
        """Go on where the splits stood."""
        assert isinstance(state, list)
        self._at = {str(_entry(item)["split"]): int(str(_entry(item)["at"])) for item in state}


class Step:
    """A stateless step: ``work(value, emit)`` for each value; ``Sharing.SPLIT`` (with no items)."""

    def __init__(self, work: Callable[[Value, Emit], None]) -> None:
        self._work = work

    def handle(self, value: Value, emit: Emit) -> None:
        """Let ``work`` do it."""
        self._work(value, emit)

    def state(self) -> Value:
        """Nothing."""
        return []

    def restore(self, state: Value) -> None:
        """Nothing to restore."""


class KeyedFold:
    """Folds the values of each key: ``fold(what there was or None, value)``; emits (key, result) pairs; ``Sharing.KEYED``."""

    def __init__(self, key: Callable[[Value], str], fold: Callable[[Value, Value], Value]) -> None:
        self._key, self._fold = key, fold
        self._folded: dict[str, Value] = {}

    def handle(self, value: Value, emit: Emit) -> None:
        """Fold one value in, and emit its key's new result."""
        key = self._key(value)
        self._folded[key] = self._fold(self._folded.get(key), value)
        emit([key, self._folded[key]])

    def state(self) -> Value:
        """Key to result."""
        return dict(self._folded)

    def restore(self, state: Value) -> None:
        """Take the keys back."""
        self._folded = dict(_entry(state))


class Collected:
    """A sink that gathers what it is given; ``out`` (a list of this vertex's own) gets each value exactly once.

    A value is shown in ``out`` when a completed point covers it: a restart takes nothing shown back and repeats nothing. The
    state is all that was received, so this is a sink for bounded results.
    """

    def __init__(self, context: VertexContext, out: list[Value] | None = None) -> None:
        self._vertex = ProcessName(f"{context.stage}-{context.index + 1}")
        self._out: list[Value] = [] if out is None else out
        self._values: list[Value] = []

    def handle(self, value: Value, emit: Emit) -> None:
        """Keep it; emits nothing."""
        del emit
        self._values.append(value)

    def state(self) -> Value:
        """All that was received, in order."""
        return list(self._values)

    def restore(self, state: Value) -> None:
        """Go back to what had been received."""
        assert isinstance(state, list)
        self._values = list(state)

    def committed(self, point: CompletedPoint) -> None:
        """Show what the point covers and was not shown before."""
        covered = point.states[self._vertex]
        assert isinstance(covered, list)
        self._out.extend(covered[len(self._out) :])


def _entry(value: Value) -> dict[str, Value]:
    assert isinstance(value, dict), f"expected a mapping, got {type(value).__name__}"
    return value
