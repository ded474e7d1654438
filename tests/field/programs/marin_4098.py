"""marin-community/marin 4098: a worker process never ends, as the thread of its actor waits for an event that nobody has."""

import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
from field_program import FAR_SECONDS, MODE, begin, join, ready


def host_actor(started: threading.Event, stopped: threading.Event | None) -> None:
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_insecure_port("127.0.0.1:0")
    server.start()
    started.set()
    if stopped is not None:
        stopped.wait()
    elif MODE == "timeout":
        threading.Event().wait(FAR_SECONDS)
    else:
        threading.Event().wait()  # core: worker


def stop_later(stopped: threading.Event) -> None:
    threading.Event().wait(FAR_SECONDS)
    stopped.set()


def work() -> None:
    started, stopped = threading.Event(), threading.Event() if MODE == "stopped" else None
    threading.Thread(target=host_actor, args=(started, stopped)).start()
    if stopped is not None:
        begin(stop_later, stopped)
    started.wait()


join("worker")
work()
ready()
