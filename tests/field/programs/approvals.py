"""Requests wait for a future each, which another method completes; they have all threads of the server."""

import threading
from concurrent import futures

import grpc
from field_program import FAR_SECONDS, MODE, begin, join, stay


class Approvals:
    """Keeps the requests that wait to be approved."""

    def __init__(self) -> None:
        self.pending: dict[bytes, futures.Future[bytes]] = {}

    def ask(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """Waits until the request has been approved."""
        approved = self.pending[request] = futures.Future()
        if MODE == "hung_up":
            context.add_callback(approved.cancel)
        return approved.result(FAR_SECONDS if MODE == "time_out" else None)  # core: approvals x2

    def approve(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """Approves a request."""
        if MODE == "one_more":
            threading.Event().wait(FAR_SECONDS)
        self.pending[request].set_result(b"approved")
        return b""


def later() -> None:
    """Rejects all requests."""
    threading.Event().wait(FAR_SECONDS)
    for one in approvals.pending.values():
        one.cancel()


join("approvals")
approvals = Approvals()
server = grpc.server(futures.ThreadPoolExecutor(3 if MODE == "one_more" else 2))
methods = {"Ask": approvals.ask, "Approve": approvals.approve}
handlers = {name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()}
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Approvals", handlers),))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
channel = grpc.insecure_channel(f"127.0.0.1:{port}")
asks, approves = channel.unary_unary("/Approvals/Ask"), channel.unary_unary("/Approvals/Approve")
if MODE == "rejected":
    begin(later)
begin(lambda: asks(b"first"))  # behind: approvals
begin(lambda: asks(b"second"))  # behind: approvals
while len(approvals.pending) < 2:
    threading.Event().wait(0.01)
begin(lambda: approves(b"first"))  # behind: approvals
stay()
