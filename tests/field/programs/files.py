"""An HTTP server with one file of a megabyte: a program of the field catalogue reads it slowly, or not at all."""

import http.server

from field_program import begin

SIZE = 1 << 20


class _Files(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(SIZE))
        self.end_headers()
        self.wfile.write(bytes(SIZE))

    def log_message(self, *_: object) -> None:
        """Nothing is logged."""


def serve_files() -> str:
    """Serve the file on loopback until the program ends; its URL."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Files)
    begin(server.serve_forever)
    return f"http://127.0.0.1:{server.server_port}/"
