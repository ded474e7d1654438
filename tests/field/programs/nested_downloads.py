"""A download is read from a client with one connection; for each part of it a request is made with the same client."""

import http.server
import threading

import httpx
from field_program import FAR_SECONDS, MODE, begin, join, stay
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


def close_later(response: httpx.Response) -> None:
    threading.Event().wait(FAR_SECONDS)
    response.close()


def download(request: bytes, context: object) -> bytes:
    with client.stream("GET", url) as whole:
        if MODE == "another":
            begin(close_later, whole)
        if MODE == "slow":
            threading.Event().wait(FAR_SECONDS)
        for _ in whole.iter_bytes():
            client.get(url)  # core: files
    return b""


join("files")
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Files)
begin(server.serve_forever)
url = f"http://127.0.0.1:{server.server_port}/"
limits = httpx.Limits(max_connections=1)
client = httpx.Client(limits=limits, timeout=httpx.Timeout(None, pool=FAR_SECONDS if MODE == "patience" else None))
call = serve(download)
begin(lambda: call(b""))  # behind: files
stay()
