"""A handler runs a child process and waits for its end; the child calls the same server, which has no other worker."""

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
from field_program import FAR_SECONDS, MODE, PROCESS, begin, end_with_parent, join, publish, published, stay


def child() -> None:
    end_with_parent()
    if MODE == "stranger":
        time.sleep(FAR_SECONDS)
        return
    join("renderer")
    fetch = grpc.insecure_channel(f"127.0.0.1:{published('site')}").unary_unary("/Site/Fetch")
    fetch(b"", timeout=FAR_SECONDS if MODE == "deadline" else None)  # core: renderer


def kill_later(process: "subprocess.Popen[str]") -> None:
    threading.Event().wait(FAR_SECONDS)
    process.kill()


def signal_later(number: int) -> None:
    threading.Event().wait(FAR_SECONDS)
    os.kill(number, 15)


def render(request: bytes, context: grpc.ServicerContext) -> bytes:
    command = [sys.executable, __file__, MODE, "child"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        if MODE == "killed":
            begin(kill_later, process)
        if MODE == "signalled":
            begin(signal_later, process.pid)
        output, _ = process.communicate(timeout=FAR_SECONDS if MODE == "patience" else None)  # core: site
        return output.encode()


def site() -> None:
    join("site")
    server = grpc.server(ThreadPoolExecutor(2 if MODE == "worker" else 1))
    handlers = {
        "Render": grpc.unary_unary_rpc_method_handler(render),
        "Fetch": grpc.unary_unary_rpc_method_handler(lambda request, context: time.sleep(FAR_SECONDS) or b""),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Site", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    publish("site", str(port))
    server.start()
    begin(lambda: grpc.insecure_channel(f"127.0.0.1:{port}").unary_unary("/Site/Render")(b""))  # behind: site
    stay()


child() if PROCESS else site()
