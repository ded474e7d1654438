"""What the detector holds during a run: samples of its memory and its descriptors, and whether they stay flat.

Rules:

1. Only one life of one process shows whether it grows, so nothing kills the detector in the second half of a run.
2. The third quarter of the run is compared with the fourth, by medians: a fault takes descriptors and memory for a while.
3. A run of less than ``SECONDS_MIN`` is not judged: a process that has just begun still loads what it needs.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

SECONDS_MIN = 300.0
DESCRIPTORS_MORE_MAX = 4
MEMORY_RATIO_MAX = 1.15
_SAMPLES_MIN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One look at the detector; ``at`` is the share of the run that is over, from 0 to 1."""

    at: float
    process: int
    descriptors: int
    resident_bytes: int


@dataclass(slots=True)
class Holdings:
    """All samples of a run of ``seconds``."""

    seconds: float
    samples: list[Sample] = field(default_factory=list)

    def growth(self) -> str | None:
        """What has grown, in a sentence; None when all is flat or the run was too short to tell."""
        third, fourth = self._quarters()
        if self.seconds < SECONDS_MIN or min(len(third), len(fourth)) < _SAMPLES_MIN:
            return None
        before, after = _descriptors(third), _descriptors(fourth)
        if after > before + DESCRIPTORS_MORE_MAX:
            return f"descriptors grow: {before:g} in the third quarter of the run, {after:g} in the fourth"
        before, after = _mebibytes(third), _mebibytes(fourth)
        if after > before * MEMORY_RATIO_MAX:
            return f"memory grows: {before:.0f} MiB in the third quarter of the run, {after:.0f} MiB in the fourth"
        return None

    def summary(self) -> str:
        """The largest of all, and the medians of the quarters of the last process."""
        if not self.samples:
            return "not sampled"
        largest = max(sample.resident_bytes for sample in self.samples) >> 20
        text = f"descriptors at most {max(sample.descriptors for sample in self.samples)}, resident at most {largest} MiB"
        third, fourth = self._quarters()
        if not third or not fourth:
            return text
        return (
            f"{text}; one process, third and fourth quarter: {_descriptors(third):g} and {_descriptors(fourth):g} descriptors, "
            f"{_mebibytes(third):.0f} and {_mebibytes(fourth):.0f} MiB"
        )

    def _quarters(self) -> tuple[list[Sample], list[Sample]]:
        last = [sample for sample in self.samples if sample.process == self.samples[-1].process]
        return [each for each in last if 0.5 <= each.at < 0.75], [each for each in last if each.at >= 0.75]


def _descriptors(samples: Sequence[Sample]) -> float:
    return statistics.median(sample.descriptors for sample in samples)


def _mebibytes(samples: Sequence[Sample]) -> float:
    return statistics.median(sample.resident_bytes for sample in samples) / 2**20
