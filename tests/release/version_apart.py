"""One of two processes, each of which serves a call with one worker by calling the other: NAME OWN_PORT OTHER_PORT."""

from __future__ import annotations

import sys
from concurrent import futures
from typing import Any

import grpc

import stilltrue

name, port, other = sys.argv[1:]
agent = stilltrue.Agent(service=name, instance=name, reactive=True)
channel = agent.channel(grpc.insecure_channel(f"127.0.0.1:{other}"))
call: Any = channel.unary_unary("/shop.Shop/Place")


def place(request: bytes, context: Any) -> Any:
    sys.stdout.write("serving\n")
    sys.stdout.flush()
    sys.stdin.readline()
    return call(b"", wait_for_ready=True)


server = grpc.server(agent.pool(futures.ThreadPoolExecutor(1)), interceptors=[agent.server_interceptor()])
handlers: dict[str, Any] = {"Place": grpc.unary_unary_rpc_method_handler(place)}
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("shop.Shop", handlers),))
server.add_insecure_port(f"127.0.0.1:{port}")
server.start()
sys.stdout.write("started\n")
sys.stdout.flush()
server.wait_for_termination()
