"""Two supervisors, each with an XML-RPC server of one thread, ask each other while they handle an event."""

import http.client
import socketserver
from xmlrpc.client import ServerProxy, Transport
from xmlrpc.server import SimpleXMLRPCServer

from field_program import FAR_SECONDS, MODE, PROCESS, begin, join, meet, publish, published, stay

OTHER = {"one": "two", "two": "one"}[PROCESS]


class Threads(socketserver.ThreadingMixIn, SimpleXMLRPCServer):
    """The same server with a thread for each request."""

    daemon_threads = True


class Limited(Transport):
    """A transport with a timeout."""

    def make_connection(self, host: object) -> http.client.HTTPConnection:
        """As ``Transport.make_connection``."""
        connection = super().make_connection(host)
        connection.timeout = FAR_SECONDS
        return connection


def state() -> str:
    return "running"


def on_event() -> str:
    """Handle an event: ask the other supervisor for its state."""
    meet("one", "two", at="event")
    transport = Limited() if MODE == "limit" and PROCESS == "one" else None
    return ServerProxy(published(OTHER), transport).state()  # core: one  # core: two


join(PROCESS)
kind = Threads if MODE == "threads" and PROCESS == "one" else SimpleXMLRPCServer
server = kind(("127.0.0.1", 0), logRequests=False)
for function in (state, on_event):
    server.register_function(function)
own = f"http://127.0.0.1:{server.server_address[1]}"
publish(PROCESS, own)
begin(server.serve_forever)
begin(lambda: ServerProxy(own).on_event())  # behind: one  # behind: two
stay()
