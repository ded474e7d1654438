"""A service that speaks HTTP (and gRPC), for the live tests: `shop.py NAME SERVER CLIENT`; prints its addresses.

`/hold?next=URL` asks URL with the lock in hand, `/pass?next=URL` asks it without, `/take` takes the lock and lets it go,
`/call?next=URL&target=ADDRESS` has the gRPC service at ADDRESS ask URL. `seconds=` limits how long it asks. Event loops
are uvloop's, as with `uvicorn[standard]`; those of a SERVER that ends in `-asyncio` are asyncio's own.
"""

import json
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc

import stilltrue

NAME, SERVER, CLIENT = sys.argv[1:4]
SERVER, _, LOOP = SERVER.partition("-")
agent = stilltrue.instrument(service=NAME, instance=NAME, block_seconds_max=0.1)

# The agent is there first, as with `stilltrue run`. Only what is used is imported: all of it takes a second.
if SERVER == "flask":
    import flask
    from werkzeug.serving import make_server
else:
    import fastapi
    import uvicorn
if CLIENT == "aiohttp":
    import aiohttp
elif CLIENT == "httpx":
    import httpx
else:
    import requests


def ask(url, seconds):
    if CLIENT == "httpx":
        with httpx.Client(timeout=seconds) as client:
            return client.get(url).text
    return requests.get(url, timeout=seconds).text


async def ask_on_loop(url, seconds):
    if CLIENT == "aiohttp":
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=seconds)) as session, session.get(url) as reply:
            return await reply.text()
    async with httpx.AsyncClient(timeout=seconds) as client:
        return (await client.get(url)).text


def call(target, url):
    with grpc.insecure_channel(target) as channel:
        return channel.unary_unary("/shop.Shop/Ask")(url.encode()).decode()


def seconds_of(arguments):
    return float(arguments["seconds"]) if "seconds" in arguments else None


def start_grpc():
    def serve(request, context):
        return ask(request.decode(), None).encode()

    server = grpc.server(ThreadPoolExecutor(4))
    handlers = {"Ask": grpc.unary_unary_rpc_method_handler(serve)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("shop.Shop", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, f"127.0.0.1:{port}"


def flask_app():
    app = flask.Flask(NAME)
    lock = agent.Lock("till")

    @app.get("/hold")
    def hold():
        with lock:
            return ask(flask.request.args["next"], seconds_of(flask.request.args))

    @app.get("/pass")
    def pass_on():
        return ask(flask.request.args["next"], seconds_of(flask.request.args))

    @app.get("/take")
    def take():
        with lock:
            return "taken"

    @app.get("/call")
    def call_grpc():
        with lock:
            return call(flask.request.args["target"], flask.request.args["next"])

    return app


def fastapi_app():
    app = fastapi.FastAPI()
    lock = agent.aio.Lock("till")

    @app.get("/hold")
    async def hold(request: fastapi.Request):
        async with lock:
            return await ask_on_loop(request.query_params["next"], seconds_of(request.query_params))

    @app.get("/pass")
    async def pass_on(request: fastapi.Request):
        return await ask_on_loop(request.query_params["next"], seconds_of(request.query_params))

    @app.get("/take")
    async def take():
        async with lock:
            return "taken"

    return app


def threaded_app():
    """FastAPI's other form: endpoints that are functions run in threads of a pool; a middleware is around them."""
    app = fastapi.FastAPI()
    lock = agent.Lock("till")

    @app.middleware("http")
    async def around(request, call_next):
        return await call_next(request)

    @app.get("/hold")
    def hold(next: str, seconds: float | None = None):
        with lock:
            return ask(next, seconds)

    @app.get("/pass")
    def pass_on(next: str, seconds: float | None = None):
        return ask(next, seconds)

    @app.get("/take")
    def take():
        with lock:
            return "taken"

    return app


def serve_flask(grpc_address):
    server = make_server("127.0.0.1", 0, flask_app(), threaded=True)
    print(json.dumps({"http": f"http://127.0.0.1:{server.server_port}", "grpc": grpc_address}), flush=True)
    server.serve_forever()


def serve_fastapi(grpc_address):
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    print(json.dumps({"http": url, "grpc": grpc_address}), flush=True)
    app = threaded_app() if SERVER == "threaded" else fastapi_app()
    uvicorn.Server(uvicorn.Config(app, log_level="warning", loop=LOOP or "uvloop")).run(sockets=[listener])


agent.wait_until_joined(30)
held = start_grpc()
threading.Thread(target=sys.stdin.read, daemon=True).start()
(serve_flask if SERVER == "flask" else serve_fastapi)(held[1])
