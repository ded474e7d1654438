"""Responses that are streamed keep their connections; a session with one blocking connection has none left for the second."""

import http.server
import threading

import requests
from field_program import FAR_SECONDS, MODE, begin, join, stay
from requests.adapters import HTTPAdapter
from served import serve

SIZE = 1 << 20


class Files(http.server.BaseHTTPRequestHandler):
    """Serves one file."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(SIZE))
        self.end_headers()
        self.wfile.write(bytes(SIZE))

    def log_message(self, *_: object) -> None:
        """Nothing is logged."""


def close_later(response: requests.Response) -> None:
    threading.Event().wait(FAR_SECONDS)
    response.raw.release_conn()


def compare(request: bytes, context: object) -> bytes:
    first = session.get(url, stream=MODE != "read")
    if MODE == "read":
        threading.Event().wait(FAR_SECONDS)
    if MODE == "another":
        begin(close_later, first)
    second = session.get(url, stream=True)  # core: files
    return first.content + second.content


join("files")
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Files)
begin(server.serve_forever)
url = f"http://127.0.0.1:{server.server_port}/"
session = requests.Session()
session.mount("http://", HTTPAdapter(pool_maxsize=2 if MODE == "room" else 1, pool_block=True))
call = serve(compare)
if MODE == "room":
    second = session.get(url, stream=True)
    begin(close_later, second)
begin(lambda: call(b""))  # behind: files
stay()
