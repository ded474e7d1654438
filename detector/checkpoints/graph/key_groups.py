"""Maps keys to vertices: keys fall into a fixed number of groups, groups into ranges, one range per vertex.

The number of groups never changes, so that state can be shared out anew to any number of vertices up to it (as Flink's key
groups do). The hash is CRC-32 of the key's UTF-8 bytes: the same in every process and every release.
"""

from __future__ import annotations

from zlib import crc32

KEY_GROUPS = 128


def group_of(key: str) -> int:
    """The key group of ``key``, in 0 ... KEY_GROUPS - 1."""
    return crc32(key.encode()) % KEY_GROUPS


def owner_of(key: str, parallelism: int) -> int:
    """The index (from 0) of the vertex that owns ``key`` among ``parallelism`` (1 ... KEY_GROUPS)."""
    return group_of(key) * parallelism // KEY_GROUPS
