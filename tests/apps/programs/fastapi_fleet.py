"""An application of two services that goes on for ever: ``stock ADDRESS`` serves gRPC; ``web ADDRESS PORT`` is FastAPI under
uvicorn with two workers, of which each request makes a gRPC call; ``load PORT`` asks it, and prints how often it was answered.
"""

import asyncio
import contextlib
import os
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import grpc

CLIENTS = 4
PAUSE_SECONDS = 0.1


def reserve(request, context):
    time.sleep(0.01)
    return b"1 " + request


def stock(address):
    server = grpc.server(ThreadPoolExecutor(2))
    handlers = {"Reserve": grpc.unary_unary_rpc_method_handler(reserve)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("shop.Stock", handlers),))
    server.add_insecure_port(address)
    server.start()
    print("begins", flush=True)
    server.wait_for_termination()


def application():
    from fastapi import FastAPI

    @contextlib.asynccontextmanager
    async def lifespan(app):
        async with grpc.aio.insecure_channel(os.environ["STOCK"]) as channel:
            app.state.stock = channel.unary_unary("/shop.Stock/Reserve")
            app.state.one_at_a_time = asyncio.Lock()
            yield

    app = FastAPI(lifespan=lifespan)

    @app.get("/orders/{name}")
    async def order(name: str):
        async with app.state.one_at_a_time:
            return {"reserved": (await app.state.stock(name.encode(), wait_for_ready=True)).decode()}

    return app


def web(address, port):
    import uvicorn

    os.environ["STOCK"] = address
    print("begins", flush=True)
    uvicorn.run("fastapi_fleet:application", factory=True, workers=2, port=int(port), log_level="warning")


def load(port):
    def ask(_):
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/orders/pen", timeout=20) as answer:
            return answer.status == 200
        return False

    answered = 0
    with ThreadPoolExecutor(CLIENTS) as clients:
        while True:
            answered += sum(clients.map(ask, range(CLIENTS)))
            print(answered, flush=True)
            time.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    {"stock": stock, "web": web, "load": load}[sys.argv[1]](*sys.argv[2:])
