"""A handler waits for the message of a worker process; the worker calls the same server, which has no other thread."""

import multiprocessing
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import grpc
from field_program import FAR_SECONDS, MODE, begin, end_with_parent, join, publish, stay


def work(port: int, pages: Connection) -> None:
    end_with_parent()
    if MODE == "stranger":
        time.sleep(FAR_SECONDS)
        return
    join("renderer")
    fetch = grpc.insecure_channel(f"127.0.0.1:{port}").unary_unary("/Site/Fetch")
    if MODE == "another":
        begin(send_later, pages)
    pages.send(fetch(b"", timeout=FAR_SECONDS if MODE == "deadline" else None))  # core: renderer


def send_later(pages: Connection) -> None:
    threading.Event().wait(FAR_SECONDS)
    pages.send(b"")


def kill_later(worker: BaseProcess) -> None:
    threading.Event().wait(FAR_SECONDS)
    worker.kill()


def kill_all_later() -> None:
    threading.Event().wait(FAR_SECONDS)
    for worker in multiprocessing.active_children():
        worker.kill()


def signal_later(number: int) -> None:
    threading.Event().wait(FAR_SECONDS)
    os.kill(number, 15)


class Site:
    """Renders pages in a process of their own."""

    port = 0

    def render(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        spawn: Any = multiprocessing.get_context("spawn")
        rendered, pages = spawn.Pipe(duplex=False)
        worker = spawn.Process(target=work, args=(self.port, pages), daemon=True)
        worker.start()
        if MODE != "kept":
            pages.close()
        if MODE == "killed":
            begin(kill_later, worker)
        if MODE == "all_killed":
            begin(kill_all_later)
        if MODE == "signalled":
            begin(signal_later, worker.pid)
        if MODE == "patience" and not rendered.poll(FAR_SECONDS):
            return b""
        return bytes(rendered.recv())  # core: site

    def run(self) -> None:
        join("site")
        server = grpc.server(ThreadPoolExecutor(2 if MODE == "worker" else 1))
        handlers = {
            "Render": grpc.unary_unary_rpc_method_handler(self.render),
            "Fetch": grpc.unary_unary_rpc_method_handler(lambda request, context: time.sleep(FAR_SECONDS) or b""),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Site", handlers),))
        self.port = server.add_insecure_port("127.0.0.1:0")
        publish("site", str(self.port))
        server.start()
        begin(lambda: grpc.insecure_channel(f"127.0.0.1:{self.port}").unary_unary("/Site/Render")(b""))  # behind: site
        stay()


if __name__ == "__main__":
    Site().run()
