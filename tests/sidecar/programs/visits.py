"""A gRPC program in Python that knows nothing of Stilltrue: it visits the places it is told, as any traced program would."""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

METHOD = "/shop.Shop/Visit"
OUTBOUND, WORKERS = sys.argv[1], int(sys.argv[2])
channels: dict[str, grpc.Channel] = {}


def visit(request: bytes, context: grpc.ServicerContext) -> bytes:
    """Hold on for ``hold`` seconds, then call the first of ``path`` with the rest, forwarding the trace."""
    wish = json.loads(request)
    time.sleep(wish["hold"])
    if not wish["path"]:
        return b"[]"
    authority, *rest = wish["path"]
    if authority not in channels:
        channels[authority] = grpc.insecure_channel(OUTBOUND, options=[("grpc.default_authority", authority)])
    given = dict(context.invocation_metadata())
    trace = str(given["traceparent"]).split("-")
    metadata = (("traceparent", "-".join([*trace[:2], "00f067aa0ba902b7", trace[3]])),)
    call: Any = channels[authority].unary_unary(METHOD)
    reply = call(json.dumps({"path": rest, "hold": 0}).encode(), metadata=metadata)
    return json.dumps([authority, *json.loads(reply)]).encode()


server = grpc.server(ThreadPoolExecutor(WORKERS))
service = grpc.method_handlers_generic_handler("shop.Shop", {"Visit": grpc.unary_unary_rpc_method_handler(visit)})
health: Any = grpc.unary_unary_rpc_method_handler(lambda _request, _context: b"\x08\x01")  # SERVING
server.add_generic_rpc_handlers((service, grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": health})))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
print(json.dumps({"port": port}), flush=True)
server.wait_for_termination()
