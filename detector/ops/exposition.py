"""``/metrics`` for Prometheus on a separate port, for processes without a web UI."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.registry import Collector


@contextmanager
def exposed(metrics: Collector, host: str, port: int) -> Iterator[int]:
    """Serve ``metrics`` within the block; yields the port. Raises ``OSError`` if it cannot listen."""
    registry = CollectorRegistry()
    registry.register(metrics)
    server, thread = start_http_server(port, host, registry)
    try:
        yield int(server.server_port)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
