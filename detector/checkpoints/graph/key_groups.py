"""Maps keys to vertices: keys are hashed to a fixed number of groups, and each vertex has a range of groups.

The number of groups never changes, so that state can be redistributed to any number of vertices up to it (like Flink's key
groups). The hash is CRC-32 of the key's UTF-8 bytes: the same in every process and every release.
"""

from __future__ import annotations

from zlib import crc32

KEY_GROUPS = 128


def group_of(key: str) -> int:
    """Return the key group of ``key``, from 0 to KEY_GROUPS - 1."""
    return crc32(key.encode()) % KEY_GROUPS


def owner_of(key: str, parallelism: int) -> int:
    """Return the index (from 0) of the vertex that owns ``key``, for a ``parallelism`` from 1 to KEY_GROUPS."""
    return group_of(key) * parallelism // KEY_GROUPS
