"""A coroutine of a web application makes a blocking request to the same application, whose event loop it blocks."""

import asyncio
import socket
import time

import fastapi
import requests
import uvicorn
from field_program import FAR_SECONDS, MODE, begin, join, stay
from served import serve

app = fastapi.FastAPI()


@app.get("/price")
def price() -> str:
    time.sleep(FAR_SECONDS)
    return "1"


@app.get("/basket")
async def basket() -> str:
    if MODE == "limit":
        return requests.get(f"{url}/price", timeout=FAR_SECONDS).text
    return requests.get(f"{url}/price").text  # core: shop


@app.get("/basket/of/thread")
def basket_of_thread() -> str:
    return requests.get(f"{url}/price").text


def show(request: bytes, context: object) -> bytes:
    return requests.get(f"{url}/basket/of/thread" if MODE == "thread" else f"{url}/basket").content  # behind: shop


async def run() -> None:
    await server.serve([listening])  # behind: shop


join("shop")
listening = socket.create_server(("127.0.0.1", 0))
url = f"http://127.0.0.1:{listening.getsockname()[1]}"
server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
begin(asyncio.run, run())
while not server.started:
    time.sleep(0.01)
call = serve(show)
begin(lambda: call(b""))  # behind: shop
stay()
