"""A service of one thread or one loop, for the live tests: `alone.py NAME KIND`; prints its address.

`/pass?next=URL` asks URL and holds up the whole service meanwhile; `seconds=` limits how long it asks. KIND is `thread` (Flask
in one thread), `stdlib` (`http.server` in one thread, which asks by `urllib`), `loop` or `uvloop` (FastAPI, whose coroutine
makes a blocking call), or one of these with `-twin`: a forked child that keeps the listening socket, and might accept from it.
"""

import json
import os
import socket
import sys
import threading
import time

NAME, KIND = sys.argv[1:3]
KIND, _, TWIN = KIND.partition("-")
listener = socket.create_server(("127.0.0.1", 0))
if TWIN and not os.fork():
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(0)

import stilltrue  # noqa: E402

agent = stilltrue.instrument(service=NAME, instance=NAME, block_seconds_max=0.1)

import requests  # noqa: E402

if KIND == "stdlib":
    import http.server
    import urllib.parse
    import urllib.request
elif KIND == "thread":
    import flask
    from werkzeug.serving import make_server
else:
    import fastapi
    import uvicorn


def ask(arguments):
    return requests.get(arguments["next"], timeout=float(arguments["seconds"]) if "seconds" in arguments else None).text


def serve_thread():
    app = flask.Flask(NAME)

    @app.get("/pass")
    def pass_on():
        return ask(flask.request.args)

    @app.get("/take")
    def take():
        return "taken"

    make_server("127.0.0.1", 0, app, fd=listener.fileno()).serve_forever()


def serve_stdlib():
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            target = urllib.parse.urlsplit(self.path)
            asked = dict(urllib.parse.parse_qsl(target.query))
            if target.path == "/pass":
                limit = {"timeout": float(asked["seconds"])} if "seconds" in asked else {}
                urllib.request.urlopen(asked["next"], **limit).read()
            self.send_response(200)
            self.end_headers()

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler, bind_and_activate=False)
    server.socket.close()
    server.socket = listener
    server.serve_forever()


def serve_loop():
    app = fastapi.FastAPI()

    @app.get("/pass")
    async def pass_on(request: fastapi.Request):
        return ask(request.query_params)

    @app.get("/take")
    async def take():
        return "taken"

    config = uvicorn.Config(app, log_level="warning", loop="uvloop" if KIND == "uvloop" else "asyncio")
    uvicorn.Server(config).run(sockets=[listener])


agent.start()
agent.wait_until_joined(30)
print(json.dumps({"http": f"http://127.0.0.1:{listener.getsockname()[1]}", "grpc": ""}), flush=True)
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
{"thread": serve_thread, "stdlib": serve_stdlib}.get(KIND, serve_loop)()
