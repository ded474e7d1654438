"""Ready-made sources, steps and sinks whose states can be restored, to build jobs from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from detector.checkpoints.graph.job import Emit, VertexContext
from detector.checkpoints.protocol.points import CompletedPoint, Value
from stilltrue.model import ProcessName


class SplitSource:
    """A bounded source that reads named splits, such as files or partitions; ``Sharing.SPLIT``.

    Splits are assigned to vertices round robin by name; each vertex reads its splits in turn, ``batch`` values at a time. The
    state is the position in each split.
    """

    def __init__(self, splits: Mapping[str, Sequence[Value]], context: VertexContext, *, batch: int = 16) -> None:
        self._splits = splits
        self._batch = batch
        self._at = dict.fromkeys(sorted(splits)[context.index :: context.parallelism], 0)

    def read(self) -> Iterable[Value] | None:
        """Return the next values of the next split."""
        for name, at in self._at.items():
            values = self._splits[name][at : at + self._batch]
            if values:
                del self._at[name]
                self._at[name] = at + len(values)  # moves the split to the end
                return values
        return None

    def state(self) -> Value:
        """Return an item per split: its name and the number of values read."""
        return [{"split": name, "at": at} for name, at in self._at.items()]

    def restore(self, state: Value) -> None:
        """Continue at the positions in ``state``."""
        assert isinstance(state, list)
        self._at = {str(_entry(item)["split"]): int(str(_entry(item)["at"])) for item in state}


class Step:
    """A stateless step: ``work(value, emit)`` for each value; ``Sharing.SPLIT`` (with no items)."""

    def __init__(self, work: Callable[[Value, Emit], None]) -> None:
        self._work = work

    def handle(self, value: Value, emit: Emit) -> None:
        """Call ``work``."""
        self._work(value, emit)

    def state(self) -> Value:
        """Return an empty list."""
        return []

    def restore(self, state: Value) -> None:
        """Do nothing."""


class KeyedFold:
    """Folds the values of each key with ``fold(previous result or None, value)``; emits (key, result); ``Sharing.KEYED``."""

    def __init__(self, key: Callable[[Value], str], fold: Callable[[Value, Value], Value]) -> None:
        self._key, self._fold = key, fold
        self._folded: dict[str, Value] = {}

    def handle(self, value: Value, emit: Emit) -> None:
        """Fold in one value, and emit its key's new result."""
        key = self._key(value)
        self._folded[key] = self._fold(self._folded.get(key), value)
        emit([key, self._folded[key]])

    def state(self) -> Value:
        """Return the result of each key."""
        return dict(self._folded)

    def restore(self, state: Value) -> None:
        """Restore the results."""
        self._folded = dict(_entry(state))


class Collected:
    """A sink that collects its input; ``out``, a list for this vertex alone, gets each value exactly once.

    A value is appended to ``out`` once a completed point covers it, so a restart neither retracts nor repeats values. The state
    is all values received, so use it for bounded results.
    """

    def __init__(self, context: VertexContext, out: list[Value] | None = None) -> None:
        self._vertex = ProcessName(f"{context.stage}-{context.index + 1}")
        self._out: list[Value] = [] if out is None else out
        self._values: list[Value] = []

    def handle(self, value: Value, emit: Emit) -> None:
        """Collect a value; emit nothing."""
        del emit
        self._values.append(value)

    def state(self) -> Value:
        """Return all values received, in order."""
        return list(self._values)

    def restore(self, state: Value) -> None:
        """Return to the values in ``state``."""
        assert isinstance(state, list)
        self._values = list(state)

    def committed(self, point: CompletedPoint) -> None:
        """Append the values that the point covers to ``out``, without those already there."""
        covered = point.states[self._vertex]
        assert isinstance(covered, list)
        self._out.extend(covered[len(self._out) :])


def _entry(value: Value) -> dict[str, Value]:
    assert isinstance(value, dict), f"expected a mapping, got {type(value).__name__}"
    return value
