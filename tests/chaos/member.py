"""One real process of the fleet: an agent, a server of one worker, and a line of standard input for each thing to do.

``hold ADDRESS``: its own worker is taken, which is answered by a line; on ``go on`` it calls ``Do`` at ADDRESS, for ever if
that one's worker is taken too. ``visit ADDRESS``: a short call.
"""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from stilltrue import Agent

VISIT_SECONDS_MAX = 2.0


def main() -> None:
    """Serve until standard input ends."""
    name, detector, port = sys.argv[1:]
    go = threading.Event()
    agent = Agent("chaos", instance=name, detector=detector, block_seconds_max=0.1)
    pool = agent.pool(ThreadPoolExecutor(1), "workers")
    server = grpc.server(pool, interceptors=[agent.server_interceptor()], options=(("grpc.so_reuseport", 0),))

    def stub(address: str, method: str) -> Any:
        return agent.channel(grpc.insecure_channel(address)).unary_unary(f"/chaos.Member/{method}")

    def do(request: bytes, context: Any) -> bytes:
        return request

    def hold(request: bytes, context: Any) -> bytes:
        sys.stdout.write("holding\n")
        sys.stdout.flush()
        go.wait()
        stub(request.decode(), "Do")(b"held")
        return b""

    handlers: dict[str, Any] = {
        "Do": grpc.unary_unary_rpc_method_handler(do),
        "Hold": grpc.unary_unary_rpc_method_handler(hold),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("chaos.Member", handlers),))
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    agent.start()
    sys.stdout.write(f"{bound}\n")
    sys.stdout.flush()
    for line in sys.stdin:
        what, address = line.split()
        if what == "hold":
            go.clear()  # of an earlier hold
            threading.Thread(target=stub(f"127.0.0.1:{bound}", "Hold"), args=(address.encode(),), daemon=True).start()
        elif what == "go":
            go.set()
        else:
            try:
                stub(address, "Do")(b"x", timeout=VISIT_SECONDS_MAX)
            except grpc.RpcError:
                continue  # a peer that is dead, or stuck


if __name__ == "__main__":
    main()
