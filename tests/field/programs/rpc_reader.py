"""Both ends of a connection run requests in the thread that reads it; a request asks the other end back, and waits."""

import json
import socket
import threading
from collections.abc import Callable
from typing import Any

import grpc
from field_program import FAR_SECONDS, MODE, begin, join, stay
from served import serve


class Peer:
    """One end: it asks the other, and answers what that asks."""

    def __init__(self, connection: socket.socket, handle: Callable[[str], str]) -> None:
        self.connection = connection
        self.handle = handle
        self.pending: dict[int, dict[str, Any]] = {}
        self.lines = connection.makefile("r")
        begin(self.read)

    def ask(self, question: str) -> str:
        number, asked = len(self.pending), {"answered": threading.Event()}
        self.pending[number] = asked
        self.send({"number": number, "question": question})
        asked["answered"].wait(FAR_SECONDS if MODE == "time_out" else None)  # core: tools x3
        return str(self.pending.pop(number)["answer"])

    def read(self) -> None:
        for line in self.lines:
            message = json.loads(line)
            if "question" not in message:
                asked = self.pending[message["number"]]
                asked["answer"] = message["answer"]
                asked["answered"].set()
            elif MODE == "in_a_thread":
                begin(self.answer, message)
            else:
                self.answer(message)

    def answer(self, message: dict[str, Any]) -> None:
        answer = self.handle(message["question"])
        self.send({"number": message["number"], "answer": answer})

    def send(self, message: dict[str, Any]) -> None:
        self.connection.sendall(json.dumps(message).encode() + b"\n")


def use(question: str) -> str:
    return tools.ask("which model?")


def sample(question: str) -> str:
    if MODE in ("slow", "in_a_thread"):
        threading.Event().wait(FAR_SECONDS)
    return client.ask("another tool")


def call(request: bytes, context: grpc.ServicerContext) -> bytes:
    if request:
        for one in client.pending.values():
            one["answered"].set()
    return client.ask("use a tool").encode()


def ask_only(request: bytes, context: grpc.ServicerContext) -> bytes:
    return client.ask("use a tool").encode()


def later() -> None:
    threading.Event().wait(FAR_SECONDS)
    for one in [*client.pending.values(), *tools.pending.values()]:
        one["answered"].set()


join("tools")
ours, theirs = socket.socketpair()
tools, client = Peer(ours, use), Peer(theirs, sample)
calls = serve(call if MODE == "method" else ask_only)
if MODE == "ended":
    begin(later)
begin(lambda: calls(b""))  # behind: tools
stay()
