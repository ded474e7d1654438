"""Both ends of a call write all that they have, and would read only afterwards: ``both_write.py MODE PROCESS [ADDRESS]``.

``stuck``: nobody else reads. Otherwise a thread of one end reads, or tells the client to read, long after the test.
"""

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc

import stilltrue

MODE, PROCESS = sys.argv[1:3]
FAR_SECONDS = 600.0
RECORD = bytes(1_000_000)
RECORDS = 100


def begin(run: object, thing: object) -> None:
    threading.Thread(target=run, args=(thing,), daemon=True).start()  # type: ignore[arg-type]


def later() -> None:
    threading.Event().wait(FAR_SECONDS)


def read_later(records: Iterator[bytes]) -> None:
    later()
    next(records)


def set_later(sent: threading.Event) -> None:
    later()
    sent.set()


def store() -> None:
    def sync(records: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        if MODE == "store_reads":
            begin(read_later, records)
        for _ in range(RECORDS):
            yield RECORD
        for _ in records:
            pass

    server = grpc.server(ThreadPoolExecutor(2))
    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(sync)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Store", {"Sync": handler}),))
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    sys.stdin.read()


def client() -> None:
    channel = grpc.insecure_channel(f"127.0.0.1:{sys.argv[3]}")
    sync: grpc.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream("/Store/Sync")

    def send_all_then_read() -> None:
        sent = threading.Event()

        def records() -> Iterator[bytes]:
            for _ in range(RECORDS):
                yield RECORD
            sent.set()

        replies = sync(records())
        if MODE == "client_reads":
            begin(read_later, replies)
        if MODE == "told":
            begin(set_later, sent)
        sent.wait()
        for _ in replies:
            pass

    threading.Thread(target=send_all_then_read, daemon=True).start()
    print("begun", flush=True)
    sys.stdin.read()


stilltrue.instrument(PROCESS, instance=PROCESS).start()
{"store": store, "client": client}[PROCESS]()
