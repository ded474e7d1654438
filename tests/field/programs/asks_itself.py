"""A web server with one thread asks itself: the request waits for the thread that makes it."""

import time

import flask
import requests
from field_program import FAR_SECONDS, MODE, begin, join, stay
from served import serve
from werkzeug.serving import make_server

app = flask.Flask("shop")


@app.get("/price")
def price() -> str:
    if MODE == "threads":
        time.sleep(FAR_SECONDS)
    return "1"


@app.get("/basket")
def basket() -> str:
    if MODE == "limit":
        return requests.get(f"{url}/price", timeout=FAR_SECONDS).text
    return requests.get(f"{url}/price").text  # core: shop


@app.get("/slow")
def slow() -> str:
    time.sleep(FAR_SECONDS)
    return "1"


def show(request: bytes, context: object) -> bytes:
    return requests.get(f"{url}/slow" if MODE == "slow" else f"{url}/basket").content  # behind: shop


join("shop")
server = make_server("127.0.0.1", 0, app, threaded=MODE == "threads")
url = f"http://127.0.0.1:{server.server_port}"
begin(server.serve_forever)
call = serve(show)
begin(lambda: call(b""))  # behind: shop
stay()
