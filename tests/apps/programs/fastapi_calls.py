"""A FastAPI application under uvicorn with two workers; each request makes a gRPC call. Prints what its clients see."""

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import grpc
from fastapi import FastAPI
from watched import wait_until_seen


@contextlib.asynccontextmanager
async def lifespan(application):
    async with grpc.aio.insecure_channel(os.environ["STOCK"]) as channel:
        application.state.stock = channel.unary_unary("/shop.Stock/Reserve")
        yield


app = FastAPI(lifespan=lifespan)


@app.get("/orders/{name}")
async def order(name: str):
    try:
        return {"reserved": (await app.state.stock(name.encode(), timeout=20)).decode(), "worker": os.getpid()}
    except grpc.aio.AioRpcError as error:
        return {"failed": error.code().name, "details": error.details(), "trailing": list(error.trailing_metadata())}


def reserve(request, context):
    context.set_trailing_metadata((("shelf", "7"),))
    if request == b"none":
        context.abort(grpc.StatusCode.NOT_FOUND, "no such thing")
    return b"1 " + request


def main():
    server = grpc.server(ThreadPoolExecutor(4))
    handlers = {"Reserve": grpc.unary_unary_rpc_method_handler(reserve)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("shop.Stock", handlers),))
    stock = "127.0.0.1:%d" % server.add_insecure_port("127.0.0.1:0")
    server.start()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [sys.executable, "-m", "uvicorn", "fastapi_calls:app", "--workers", "2", "--port", port, "--log-level", "warning"]
    web = subprocess.Popen(command, env={**os.environ, "STOCK": stock}, cwd=os.path.dirname(os.path.abspath(__file__)))
    try:
        url = f"http://127.0.0.1:{port}/orders/"
        wait_for(url + "pen")
        with ThreadPoolExecutor(16) as clients:
            answers = list(clients.map(lambda number: get(f"{url}book{number % 3}"), range(400)))
        seen = sorted({answer.split(',"worker"')[0] for answer in answers})
        print("RESULT", len(answers), seen, get(url + "none"))
        wait_until_seen()
    finally:
        web.terminate()
        print("RESULT exit", web.wait(30))
    server.stop(None).wait()


def get(url):
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.read().decode()


def wait_for(url):
    for _ in range(300):
        try:
            return get(url)
        except OSError:
            time.sleep(0.1)
    raise TimeoutError(url)


if __name__ == "__main__":
    main()
