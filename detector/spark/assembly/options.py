"""The schema and the options of both sources of records."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pyarrow as pa

from detector.assembly.cluster import Cluster

RECORDS = pa.schema([("key", pa.string()), ("value", pa.binary()), ("at", pa.timestamp("us", tz="UTC"))])
RECORDS_SPARK = "key string, value binary, at timestamp"
"""The same schema for Spark."""


def source_options(cluster: Cluster, records_per_batch_max: int) -> dict[str, str]:
    """Return the options of a source."""
    return {
        "servers": cluster.servers,
        "topics": cluster.topics,
        "properties": json.dumps(dict(cluster.properties)),
        "record_bytes_max": str(cluster.record_bytes_max),
        "records_per_batch_max": str(records_per_batch_max),
    }


def cluster_of(options: Mapping[str, str]) -> Cluster:
    """Return the cluster that the options describe."""
    return Cluster(
        options["servers"],
        topics=options["topics"],
        properties=json.loads(options["properties"]),
        record_bytes_max=int(options["record_bytes_max"]),
    )
