"""A web application, on a server with one thread, asks itself."""

import socketserver
import threading
import urllib.request
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from bottle import Bottle
from field_program import FAR_SECONDS, MODE, begin, join, stay


class Threads(socketserver.ThreadingMixIn, WSGIServer):
    """The same server with a thread for each request."""

    daemon_threads = True


class Silent(WSGIRequestHandler):
    """Logs nothing."""

    def log_message(self, format: str, *args: object) -> None:
        """As ``BaseHTTPRequestHandler.log_message``."""


join("site")
app = Bottle()


@app.get("/a")
def a() -> str:
    return "a"


@app.get("/b")
def b() -> str:
    limit = {"timeout": FAR_SECONDS} if MODE == "limit" else {}
    urllib.request.urlopen(f"{url}/a", **limit).read()  # core: site
    return "done"


def serve_later() -> None:
    threading.Event().wait(FAR_SECONDS)
    server.handle_request()


server = make_server("127.0.0.1", 0, app, server_class=Threads if MODE == "threads" else WSGIServer, handler_class=Silent)
url = f"http://127.0.0.1:{server.server_port}"
if MODE == "later":
    begin(serve_later)
if MODE == "closed":
    timer = threading.Timer(FAR_SECONDS, server.server_close)
    timer.daemon = True
    timer.start()
begin(server.serve_forever)
begin(lambda: urllib.request.urlopen(f"{url}/b").read())  # behind: site
stay()
