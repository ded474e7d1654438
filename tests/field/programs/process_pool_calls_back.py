"""A handler waits for an item of its pool of processes; the item calls the same server, which has no other thread."""

import multiprocessing
import os
import threading
import time
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor

import grpc
from field_program import FAR_SECONDS, MODE, begin, end_with_parent, join, publish, published, stay
from terminating import terminate_all_later


def start() -> None:
    end_with_parent()
    if MODE != "stranger":
        join("renderer")


def render(port: int) -> bytes:
    if MODE == "stranger":
        time.sleep(FAR_SECONDS)
    fetch = grpc.insecure_channel(f"127.0.0.1:{port}").unary_unary("/Site/Fetch")
    publish("renders", "")
    return bytes(fetch(b"", timeout=FAR_SECONDS if MODE == "deadline" else None))  # core: renderer


def end_later() -> None:
    threading.Event().wait(FAR_SECONDS)
    os._exit(1)


class Site:
    """Renders pages in a pool of processes."""

    port = 0

    def __init__(self) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.pool = ProcessPoolExecutor(1, mp_context=spawn, initializer=start)

    def render(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        page = self.pool.submit(render, self.port)
        if MODE == "killed":
            begin(self.kill_later)
        if MODE == "all_killed":
            begin(terminate_all_later)
        if MODE == "completed":
            begin(complete_later, page)
        if MODE == "ends":
            begin(end_later)
        return page.result(FAR_SECONDS if MODE == "patience" else None)  # core: site

    def kill_later(self) -> None:
        threading.Event().wait(FAR_SECONDS)
        for worker in self.pool._processes.values():
            worker.kill()

    def run(self) -> None:
        join("site")
        server = grpc.server(ThreadPoolExecutor(2 if MODE == "worker" else 1))
        handlers = {
            "Render": grpc.unary_unary_rpc_method_handler(self.render),
            "Fetch": grpc.unary_unary_rpc_method_handler(lambda request, context: time.sleep(FAR_SECONDS) or b""),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Site", handlers),))
        self.port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        begin(lambda: grpc.insecure_channel(f"127.0.0.1:{self.port}").unary_unary("/Site/Render")(b""))  # behind: site
        if MODE != "stranger":
            published("renders")
        stay()


def complete_later(page: "Future[bytes]") -> None:
    threading.Event().wait(FAR_SECONDS)
    page.set_result(b"")


if __name__ == "__main__":
    Site().run()
