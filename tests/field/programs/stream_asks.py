"""A server's only worker reads a stream; its client makes the next request from the answer of another call to that server."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
from field_program import FAR_SECONDS, MODE, PROCESS, begin, join, publish, published, stay


def shop() -> None:
    join("shop")

    def upload(requests: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        publish("asked", "")
        return b"".join(requests)  # core: shop

    def price(request: bytes, context: grpc.ServicerContext) -> bytes:
        threading.Event().wait(FAR_SECONDS)
        return b""

    server = grpc.server(ThreadPoolExecutor(2 if MODE == "worker" else 1))
    handlers = {
        "Upload": grpc.stream_unary_rpc_method_handler(upload),
        "Price": grpc.unary_unary_rpc_method_handler(price),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Shop", handlers),))
    publish("shop", str(server.add_insecure_port("127.0.0.1:0")))
    server.start()
    stay()


def client() -> None:
    join("client")
    channel = grpc.insecure_channel(f"127.0.0.1:{published('shop')}")
    upload, price = channel.stream_unary("/Shop/Upload"), channel.unary_unary("/Shop/Price")

    def requests() -> Iterator[bytes]:
        published("asked")
        yield price(b"", timeout=FAR_SECONDS if MODE == "limit" else None)  # core: client

    def cancel_later(call: grpc.Future) -> None:
        threading.Event().wait(FAR_SECONDS)
        call.cancel()

    def send() -> None:
        if MODE in ("cancelled", "watched"):
            call = upload.future(requests())
            begin(cancel_later, call)
            if MODE == "watched":
                call.result()
            return
        upload(requests(), timeout=FAR_SECONDS if MODE == "deadline" else None)  # core: client

    begin(send)
    published("asked")
    stay()


{"shop": shop, "client": client}[PROCESS]()
