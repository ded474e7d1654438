"""The address of Kafka (or of the store that replaces it) and the names of its topics, without importing the client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

REPORTS, RESULTS = "reports", "results"
_RECORD_BYTES_SPARE = 2**20
_NOT_STORES = ("http", "https", "kafka", "plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
"""Schemes that people write before Kafka's address; a URI's would be that of an object store."""


class RecordsUnavailableError(Exception):
    """Kafka, or the store that replaces it, cannot be used; the one-line text says why."""


class RecordsLostError(RuntimeError):
    """Records were removed before they were read."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A Kafka cluster, or an object store or directory that replaces it.

    ``servers``: ``HOST:PORT[,...]``, or a URI or path. ``topics``: the prefix of the topic names. ``properties``: librdkafka
    properties (``security.protocol`` and the like). ``record_bytes_max``: the size of the largest record.
    """

    servers: str
    topics: str = "stilltrue"
    properties: Mapping[str, str] = field(default_factory=dict)
    record_bytes_max: int = 16 * 2**20

    @property
    def in_objects(self) -> bool:
        """Whether records are objects (:mod:`detector.assembly.objects`); every path and URI contains a slash."""
        return "/" in self.servers

    @property
    def kind(self) -> str:
        """What it is, for people."""
        return "the store of records" if self.in_objects else "Kafka"

    def topic(self, name: str) -> str:
        """The full name of ``REPORTS`` or ``RESULTS``."""
        return f"{self.topics}.{name}"

    def settings(self, **more: Any) -> dict[str, Any]:
        """The settings for librdkafka."""
        return {"bootstrap.servers": self.servers, "log_level": 0, **self.properties, **more}

    @property
    def message_bytes_max(self) -> int:
        """The size of the largest message: a record, with what Kafka adds."""
        return self.record_bytes_max + _RECORD_BYTES_SPARE


def client(cluster: Cluster) -> ModuleType:
    """The module that reads and writes a cluster's records.

    Raises :class:`RecordsUnavailableError` without its extra, and for an address that no store can have.
    """
    scheme, separator, servers = cluster.servers.partition("://")
    if separator and scheme.lower() in _NOT_STORES:
        raise RecordsUnavailableError(f"--kafka: {cluster.servers!r} is a URL, not HOST:PORT: write {servers.rstrip('/')}")
    module, extra = ("objects", "archive") if cluster.in_objects else ("kafka", "kafka")
    try:
        found = import_module(f"detector.assembly.{module}")
    except ImportError as error:
        text = f"{error}; install it with: pip install 'stilltrue-detector[{extra}]'"
        if extra == "kafka" and ":" not in cluster.servers:
            text += f" (or is {cluster.servers!r} a directory? a path has a slash: ./{cluster.servers})"
        raise RecordsUnavailableError(text) from None
    if cluster.in_objects:
        found.refuse_unknown(cluster)
    return found


def read_properties(path: Path | None) -> dict[str, str]:
    """Read ``key=value`` lines from a file, without ``#`` comments. Raises :class:`RecordsUnavailableError`."""
    if path is None:
        return {}
    try:
        lines = [line.strip() for line in path.read_text().splitlines()]
    except OSError as error:
        raise RecordsUnavailableError(f"{path}: {error.strerror}") from None
    pairs = [line.partition("=") for line in lines if line and not line.startswith("#")]
    for key, equals, _ in pairs:
        if not equals:
            raise RecordsUnavailableError(f"{path}: {key!r} is not KEY=VALUE")
    return {key.strip(): value.strip() for key, _, value in pairs}
