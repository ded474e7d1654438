"""Three workers meet at a barrier in a server, which has only two threads."""

import threading
from collections.abc import Callable
from concurrent import futures
from typing import Any

import grpc
from field_program import FAR_SECONDS, MODE, begin, join, stay


class Round:
    """What workers do together."""

    def __init__(self) -> None:
        self.barrier = threading.Barrier(3)

    def meet(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """Waits for all workers."""
        if MODE == "hung_up":
            context.add_callback(self.barrier.abort)
        self.barrier.wait(FAR_SECONDS if MODE == "time_out" else None)  # core: training x2
        return b""


class Ends(grpc.ServerInterceptor):
    """Ends the round for whoever asks for that."""

    def __init__(self, of: Round) -> None:
        self.of = of

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        if details.method.endswith("End"):
            self.of.barrier.abort()
        return continuation(details)


join("training")
training = Round()
server = grpc.server(futures.ThreadPoolExecutor(2), interceptors=[Ends(training)] if MODE == "interceptor" else [])
handlers = {"Meet": grpc.unary_unary_rpc_method_handler(training.meet)}
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Training", handlers),))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
meets = grpc.insecure_channel(f"127.0.0.1:{port}").unary_unary("/Training/Meet")
for _ in range(3):
    begin(lambda: meets(b""))  # behind: training x3
stay()
