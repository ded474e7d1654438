"""What both sources of records have in common: their rows, and their options."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pyarrow as pa

from detector.assembly.cluster import Cluster

RECORDS = pa.schema([("key", pa.string()), ("value", pa.binary()), ("at", pa.timestamp("us", tz="UTC"))])
RECORDS_SPARK = "key string, value binary, at timestamp"
"""The same, as Spark reads it."""


def source_options(cluster: Cluster, records_per_batch_max: int) -> dict[str, str]:
    """The options of a source."""
    return {
        "servers": cluster.servers,
        "topics": cluster.topics,
        "properties": json.dumps(dict(cluster.properties)),
        "record_bytes_max": str(cluster.record_bytes_max),
        "records_per_batch_max": str(records_per_batch_max),
    }


def cluster_of(options: Mapping[str, str]) -> Cluster:
    """The cluster that options name."""
    return Cluster(
        options["servers"],
        topics=options["topics"],
        properties=json.loads(options["properties"]),
        record_bytes_max=int(options["record_bytes_max"]),
    )
