"""prometheus/client_python 1076: a collector that is being registered registers another metric in the same registry."""

import threading
from collections.abc import Iterator

from field_program import FAR_SECONDS, MODE, begin, join, stay
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.metrics_core import GaugeMetricFamily

REGISTRY = CollectorRegistry(auto_describe=True)
OTHER = CollectorRegistry(auto_describe=True)


class Cache:
    """The size of a cache, which counts its own reads."""

    def collect(self) -> Iterator[GaugeMetricFamily]:
        if MODE == "slow":
            threading.Event().wait(FAR_SECONDS)
        Counter("cache_reads", "Reads of the cache", registry=OTHER if MODE == "other_registry" else REGISTRY)  # core: site
        yield GaugeMetricFamily("cache_size", "Size of the cache", value=1)


join("site")
begin(REGISTRY.register, Cache())
stay()
