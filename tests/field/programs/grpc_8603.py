"""grpc/grpc 8603: servers with pools of threads call each other in a cycle; every thread waits for one of the next."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from field_program import FAR_SECONDS, MODE, PROCESS, begin, join, meet, publish, published, stay

RING = ("ring-a", "ring-b", "ring-c")
WORKERS = 2
after = RING[(RING.index(PROCESS) + 1) % len(RING)]
all_busy = threading.Barrier(WORKERS)
calls: dict[str, Any] = {}


def work(request: bytes, context: grpc.ServicerContext) -> bytes:
    all_busy.wait()
    meet(*RING, at="busy")
    if MODE == "deadline" and PROCESS == "ring-a":
        return bytes(calls["help"](request, timeout=FAR_SECONDS))
    return bytes(calls["help"](request))  # core: ring-a x2 # core: ring-b x2 # core: ring-c x2


def give_help(request: bytes, context: grpc.ServicerContext) -> bytes:
    return request


def ask() -> None:
    calls["work"](b"")  # behind: ring-a x2 # behind: ring-b x2 # behind: ring-c x2


join(PROCESS)
server = grpc.server(ThreadPoolExecutor(WORKERS + 1 if MODE == "one_more" and PROCESS == "ring-b" else WORKERS))
handlers: dict[str, Any] = {
    "Work": grpc.unary_unary_rpc_method_handler(work),
    "Help": grpc.unary_unary_rpc_method_handler(give_help),
}
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Ring", handlers),))
address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
server.start()
publish(PROCESS, address)
neighbour, own = grpc.insecure_channel(published(after)), grpc.insecure_channel(address)
calls["help"] = neighbour.unary_unary("/Ring/Help")
calls["work"] = own.unary_unary("/Ring/Work")
for _ in range(WORKERS):
    begin(ask)
stay()
