"""python/cpython 83978: a request's handler shuts its server down, and waits until the server has done with the request."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from urllib.request import urlopen

from field_program import FAR_SECONDS, MODE, begin, join, stay

FAR, handling = threading.Event(), threading.Event()


class Handler(BaseHTTPRequestHandler):
    """Ends the service on request."""

    def do_GET(self) -> None:
        handling.set()
        if MODE == "slow":
            FAR.wait(FAR_SECONDS)
        elif MODE == "by_a_thread":
            begin(self.server.shutdown)
        else:
            self.server.shutdown()  # core: callback
        self.send_response(204)
        self.end_headers()


def shut_down() -> None:
    handling.wait()
    server.shutdown()


join("callback")
server = (ThreadingHTTPServer if MODE == "threads" else HTTPServer)(("127.0.0.1", 0), Handler)
begin(server.serve_forever)
begin(lambda: urlopen(f"http://127.0.0.1:{server.server_port}/stop"))  # behind: callback
if MODE == "slow":
    begin(shut_down)
stay()
