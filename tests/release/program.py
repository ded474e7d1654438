"""An ordinary program: two handlers, on all the workers that there are, call each other and hang."""

from __future__ import annotations

import sys
import threading
from concurrent import futures

import grpc

both_hold = threading.Barrier(2)


class Transfers(grpc.GenericRpcHandler):
    """``/bank.Transfers/Left`` calls ``Right`` and the other way round, each on the last free worker."""

    def __init__(self) -> None:
        self.channel: grpc.Channel | None = None

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        other = "Right" if handler_call_details.method.endswith("Left") else "Left"
        return grpc.unary_unary_rpc_method_handler(lambda request, _: self.call(other, request))

    def call(self, other: str, request: bytes) -> bytes:
        both_hold.wait()
        return self.method(other)(request)

    def method(self, name: str) -> grpc.UnaryUnaryMultiCallable[bytes, bytes]:
        assert self.channel is not None
        return self.channel.unary_unary(f"/bank.Transfers/{name}", bytes, bytes)


def main() -> None:
    transfers = Transfers()
    server = grpc.server(futures.ThreadPoolExecutor(2), handlers=[transfers])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    transfers.channel = grpc.insecure_channel(f"127.0.0.1:{port}")
    calls = [transfers.method(name).future(b"") for name in ("Left", "Right")]
    sys.stdin.read()  # until the test has seen enough
    for call in calls:
        call.cancel()
    server.stop(None)


if __name__ == "__main__":
    main()
