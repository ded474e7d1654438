"""Handlers put into a bounded queue; the thread that empties it calls the same server, all of whose threads wait for room."""

import queue
import threading
from concurrent import futures

import grpc
from field_program import FAR_SECONDS, MODE, begin, join, stay


class Journal:
    """Keeps entries for a thread that writes them, by calls."""

    def __init__(self) -> None:
        self.entries: queue.Queue[bytes] = queue.Queue(0 if MODE == "unbounded" else 1)

    def append(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """Keeps a few entries."""
        for _ in range(5):
            self.entries.put(request, timeout=FAR_SECONDS if MODE == "time_out" else None)  # core: journal x2
        if MODE == "unbounded":
            threading.Event().wait(FAR_SECONDS)
        return b""

    def flush(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """Writes an entry."""
        return request

    def write(self) -> None:
        """Writes one entry after the other."""
        started.wait()
        while True:
            entry = self.entries.get()
            if MODE == "slow":
                threading.Event().wait(FAR_SECONDS)
            flushes(entry, timeout=FAR_SECONDS if MODE == "deadline" else None)  # core: journal


def later() -> None:
    """Makes room."""
    threading.Event().wait(FAR_SECONDS)
    journal.entries.get()


join("journal")
journal = Journal()
started = threading.Event()
server = grpc.server(futures.ThreadPoolExecutor(2))
methods = {"Append": journal.append, "Flush": journal.flush}
handlers = {name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()}
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Journal", handlers),))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
channel = grpc.insecure_channel(f"127.0.0.1:{port}")
appends, flushes = channel.unary_unary("/Journal/Append"), channel.unary_unary("/Journal/Flush")
if MODE == "drained":
    begin(later)
begin(journal.write)
for _ in range(2):
    begin(lambda: appends(b"entry"))  # behind: journal x2
while MODE != "unbounded" and not journal.entries.full():
    threading.Event().wait(0.01)
started.set()
stay()
