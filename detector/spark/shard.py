"""One shard of a giant wait graph: some of its waits, and what a round of the reduction can tell from them alone.

A shard holds whole waits, any of them, over parties numbered 0 to P - 1 for the entire graph. What it knows of the rest of the
graph is one bit a party: free or not. Between rounds its state lies in a file, so that any worker can go on with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import fs
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from detector.graph.columns import NO_NUMBER, Bools, Ints, WaitColumns
from detector.graph.reduction import reduce
from stilltrue.model import PartyName


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shard:
    """Open waits as CSR; ``short`` says how many of each wait's targets must still come."""

    waiter: Ints
    short: Ints
    indptr: Ints
    targets: Ints

    @classmethod
    def read(cls, filesystem: fs.FileSystem, path: str, groups: Sequence[int] | None = None) -> Shard:
        """Waits from a Parquet file with the columns ``waiter``, ``needs`` and ``among`` (a list), all integers."""
        with filesystem.open_input_file(path) as source:
            file = pq.ParquetFile(source)
            parts = [
                cls._of(file.read_row_group(group, columns=["waiter", "needs", "among"], use_threads=False))
                for group in (range(file.num_row_groups) if groups is None else groups)
            ]
        return joined(parts)

    @classmethod
    def _of(cls, rows: pa.Table) -> Shard:
        among = rows.column("among").combine_chunks()
        among = among.chunk(0) if isinstance(among, pa.ChunkedArray) else among
        offsets = among.offsets.to_numpy()
        return cls(
            waiter=rows.column("waiter").to_numpy().astype(np.int32),
            short=rows.column("needs").to_numpy().astype(np.int32),
            indptr=(offsets - offsets[0]).astype(np.int32),
            targets=among.flatten().to_numpy().astype(np.int32),
        )

    @classmethod
    def load(cls, filesystem: fs.FileSystem, path: str) -> Shard:
        """The state that :meth:`save` wrote."""
        with filesystem.open_input_file(path) as source:
            arrays = [np.load(cast("IO[bytes]", source), allow_pickle=False) for _ in range(4)]
        return cls(waiter=arrays[0], short=arrays[1], indptr=arrays[2], targets=arrays[3])

    def save(self, filesystem: fs.FileSystem, path: str) -> None:
        """Keep the state for the next round."""
        with filesystem.open_output_stream(path) as sink:
            for array in (self.waiter, self.short, self.indptr, self.targets):
                np.save(cast("IO[bytes]", sink), array, allow_pickle=False)

    def waiters(self, parties: int) -> Bools:
        """(P,) who waits here."""
        waiting = np.zeros(parties, np.bool_)
        waiting[self.waiter] = True
        return waiting

    def reduced(self, held: Bools) -> Shard:
        """The waits that are still open when everybody but ``held`` (P,) may be freed as far as this shard can tell."""
        reduction = reduce(self._columns(range(len(held))), held=held)
        return Shard(waiter=reduction.waiter, short=reduction.short, indptr=reduction.indptr, targets=reduction.targets)

    def numbered(self) -> tuple[Shard, Ints]:
        """The same waits over the parties that occur in them, numbered anew; and who those are."""
        parties = np.union1d(self.waiter, self.targets)
        return (
            Shard(
                waiter=np.searchsorted(parties, self.waiter).astype(np.int32),
                short=self.short,
                indptr=self.indptr,
                targets=np.searchsorted(parties, self.targets).astype(np.int32),
            ),
            parties,
        )

    def core(self, parties: int) -> Bools:
        """(P,) who lies on a cycle of these waits: a strong component of several, or a wait for oneself."""
        rows = np.repeat(self.waiter, np.diff(self.indptr))
        inside = self.waiters(parties)[self.targets]
        rows, targets = rows[inside], self.targets[inside]
        graph = csr_array((np.ones(len(rows), np.int8), (rows, targets)), shape=(parties, parties))
        _, labels = connected_components(graph, directed=True, connection="strong")
        on_cycle: Bools = np.bincount(labels, minlength=1)[labels] > 1
        on_cycle[rows[rows == targets]] = True
        return on_cycle

    def _columns(self, names: range) -> WaitColumns:
        count = len(self.waiter)
        nothing = np.broadcast_to(np.nan, count)
        return WaitColumns(
            names=cast("tuple[PartyName, ...]", names),  # the reduction asks for their number only
            waiter=self.waiter,
            needs=self.short,
            indptr=self.indptr,
            targets=self.targets,
            deadline=nothing,
            since=nothing,
            number=np.broadcast_to(np.int64(NO_NUMBER), count),
            uncoloured=np.broadcast_to(np.False_, count),
        )


def joined(parts: Sequence[Shard]) -> Shard:
    """Several shards' waits as one's."""
    ends = np.cumsum([0, *(len(part.targets) for part in parts)])
    begins: list[Ints] = [part.indptr[1:] + end for part, end in zip(parts, ends.tolist(), strict=False)]
    return Shard(
        waiter=np.concatenate([part.waiter for part in parts] or [np.empty(0, np.int32)]),
        short=np.concatenate([part.short for part in parts] or [np.empty(0, np.int32)]),
        indptr=np.concatenate([np.zeros(1, np.int64), *begins]).astype(np.int32 if ends[-1] < 2**31 else np.int64),
        targets=np.concatenate([part.targets for part in parts] or [np.empty(0, np.int32)]),
    )


def save_bits(filesystem: fs.FileSystem, path: str, flags: Bools) -> None:
    """One bit a party."""
    with filesystem.open_output_stream(path) as sink:
        sink.write(np.packbits(flags).tobytes())


def load_bits(filesystem: fs.FileSystem, path: str, parties: int) -> Bools:
    """What :func:`save_bits` wrote."""
    with filesystem.open_input_stream(path) as source:
        packed: NDArray[np.uint8] = np.frombuffer(source.read(), np.uint8)
    return np.unpackbits(packed, count=parties).view(np.bool_)
